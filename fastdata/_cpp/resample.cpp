#include "resample.hpp"

#include <cstring>

namespace fastdata {

void Resampler::begin(int channels) {
  channels_ = channels;
  bytes_ = static_cast<size_t>(x.count()) * channels;
  stride_ = (bytes_ + kSlack + 63) / 64 * 64;
  const size_t need = stride_ * (y.source_high() - y.source_low());
  if (rows_.size() < need) rows_.resize(need);
  if (static_cast<int>(taps_.size()) < y.width()) taps_.resize(y.width());
  if (!kernels_.make_plan || x.identity()) return;
  if (plan_version_ == x.version() && plan_channels_ == channels) return;
  const size_t words = (kernels_.plan_size(x, channels) + 7) / 8 + 8;
  if (plan_.size() < words) plan_.resize(words);
  planned_ = kernels_.make_plan(x, channels, plan_.data());
  plan_version_ = x.version();
  plan_channels_ = channels;
}

void Resampler::push(int row, const uint8_t* pixels) noexcept {
  uint8_t* target = row_at(row);
  if (x.identity()) {
    std::memcpy(target, pixels, bytes_);
  } else if (kernels_.make_plan && planned_) {
    kernels_.horizontal(pixels, target, x, channels_, plan_.data());
  } else {
    generic_kernels().horizontal(pixels, target, x, channels_, nullptr);
  }
}

const uint8_t* Resampler::output(int i, uint8_t* target) noexcept {
  const int start = y.starts()[i], taps = y.taps()[i];
  if (taps == 1) return row_at(start);
  for (int t = 0; t < taps; ++t) taps_[t] = row_at(start + t);
  kernels_.vertical(taps_.data(), y.weights() + static_cast<size_t>(i) * y.width(), taps, target, bytes_);
  return target;
}

}  // namespace fastdata
