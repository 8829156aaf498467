#include "resample.hpp"

#include <cstring>

namespace fastdata {

void Resampler::begin(int channels, bool vertical_first) {
  channels_ = channels;
  vertical_first_ = vertical_first && !x.identity();
  const size_t source_bytes = static_cast<size_t>(x.source_high() - x.source_low()) * channels;
  const size_t target_bytes = static_cast<size_t>(x.count()) * channels;
  kept_ = vertical_first_ ? source_bytes : target_bytes;
  stride_ = (kept_ + kSlack + 63) / 64 * 64;
  const size_t need = stride_ * (y.source_high() - y.source_low());
  if (rows_.size() < need) rows_.resize(need);
  if (vertical_first_) {
    if (wide_.size() < source_bytes + kSlack) wide_.resize(source_bytes + kSlack);
    if (narrow_.size() < target_bytes + kSlack) narrow_.resize(target_bytes + kSlack);
  }
  if (static_cast<int>(taps_.size()) < y.width()) taps_.resize(y.width());
  if (kernels_.make_plan && !x.identity()) plan();
}

void Resampler::plan() {
  if (plan_version_ == x.version() && plan_channels_ == channels_) return;
  const size_t words = kernels_.plan_size(x, channels_) / 8 + 1;
  if (plan_.size() < words) plan_.resize(words);
  planned_ = kernels_.make_plan(x, channels_, plan_.data());
  plan_version_ = x.version();
  plan_channels_ = channels_;
}

void Resampler::horizontal(const uint8_t* const* sources, uint8_t* const* targets, int count) noexcept {
  if (kernels_.make_plan && planned_) {
    kernels_.horizontal(sources, targets, count, x, channels_, plan_.data());
  } else {
    generic_kernels().horizontal(sources, targets, count, x, channels_, nullptr);
  }
}

void Resampler::push(int row, const uint8_t* const* pixels, int count) noexcept {
  if (vertical_first_ || x.identity()) {
    for (int i = 0; i < count; ++i) std::memcpy(row_at(row + i), pixels[i], kept_);
    return;
  }
  uint8_t* targets[kRowsAtOnce];
  for (int i = 0; i < count; ++i) targets[i] = row_at(row + i);
  horizontal(pixels, targets, count);
}

const uint8_t* Resampler::output(int i, uint8_t* target) noexcept {
  const int start = y.starts()[i], taps = y.taps()[i];
  const uint8_t* made = row_at(start);
  if (taps > 1) {
    for (int t = 0; t < taps; ++t) taps_[t] = row_at(start + t);
    uint8_t* sum = vertical_first_ ? wide_.data() : target;
    kernels_.vertical(taps_.data(), y.weights() + static_cast<size_t>(i) * y.width(), taps, sum, kept_);
    made = sum;
  }
  if (!vertical_first_) return made;
  uint8_t* narrow = narrow_.data();
  horizontal(&made, &narrow, 1);
  return narrow;
}

}  // namespace fastdata
