#include "axis.hpp"

#include <algorithm>
#include <cmath>

namespace fastdata {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The filters of Pillow's src/libImaging/Resample.c; the same operations in the same order, so that weights agree.
inline double box_filter(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

inline double bilinear_filter(double x) {
  x = x < 0.0 ? -x : x;
  return x < 1.0 ? 1.0 - x : 0.0;
}

inline double hamming_filter(double x) {
  x = x < 0.0 ? -x : x;
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x = x * kPi;
  return std::sin(x) / x * (0.54f + 0.46f * std::cos(x));
}

inline double bicubic_filter(double x) {
  constexpr double a = -0.5;
  x = x < 0.0 ? -x : x;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

inline double sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * kPi;
  return std::sin(x) / x;
}

inline double lanczos_filter(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

bool same(const AxisSpec& a, const AxisSpec& b) {
  return a.from == b.from && a.to == b.to && a.low == b.low && a.high == b.high &&
         a.virtual_size == b.virtual_size && a.first == b.first && a.count == b.count && a.reversed == b.reversed &&
         a.filter == b.filter && a.antialias == b.antialias;
}

// A window inside the box is measured from the box, as if the box had been cut out first (RandomResizedCrop);
// otherwise from the picture (Resize, then CenterCrop). Pillow takes the window as float32.
int origin_of(const AxisSpec& spec) { return spec.from > spec.low - 1 && spec.to < spec.high + 1 ? spec.low : 0; }

}  // namespace

bool Axis::prepare(const AxisSpec& spec) {
  if (version_ != 0 && same(spec, spec_)) return true;
  if (spec.high <= spec.low || spec.virtual_size < 1 || spec.count < 1 || !(spec.to > spec.from)) return false;
  spec_ = spec;
  ++version_;
  count_ = spec.count;
  starts_.resize(count_);
  taps_.resize(count_);
  if (spec.filter == Filter::kNearest) {
    prepare_nearest(spec);
  } else {
    prepare_smooth(spec);
  }
  source_low_ = spec.high;
  source_high_ = spec.low;
  most_taps_ = 0;
  identity_ = !spec.reversed;
  for (int i = 0; i < count_; ++i) {
    if (taps_[i] < 1) return version_ = 0, false;
    most_taps_ = std::max(most_taps_, taps_[i]);
    source_low_ = std::min(source_low_, starts_[i]);
    source_high_ = std::max(source_high_, starts_[i] + taps_[i]);
    identity_ = identity_ && taps_[i] == 1 && starts_[i] == starts_[0] + i;
  }
  if (spec.reversed) reverse();
  return true;
}

void Axis::prepare_nearest(const AxisSpec& spec) {
  width_ = 1;
  weights_.assign(count_, 1 << kPrecision);
  // Pillow (Geometry.c, ImagingScaleAffine) adds up the step, so the rounding of the sum is part of the result.
  const int origin = origin_of(spec);
  const float from = static_cast<float>(spec.from - origin), to = static_cast<float>(spec.to - origin);
  const double step = static_cast<double>(to - from) / spec.virtual_size;
  double at = from + step * 0.5;
  for (int i = 0; i < spec.first; ++i) at += step;
  for (int i = 0; i < count_; ++i, at += step) {
    const int index = (at < 0.0 ? -1 : static_cast<int>(at)) + origin;
    starts_[i] = std::clamp(index, spec.low, spec.high - 1);
    taps_[i] = 1;
  }
}

template <typename Filter>
void Axis::prepare_filter(const AxisSpec& spec, double radius, Filter filter) {
  const int origin = origin_of(spec);
  const float from = static_cast<float>(spec.from - origin), to = static_cast<float>(spec.to - origin);
  const int low = spec.low - origin, high = spec.high - origin;
  const double scale = static_cast<double>(to - from) / spec.virtual_size;
  const double filter_scale = spec.antialias ? std::max(scale, 1.0) : 1.0;
  const double support = radius * filter_scale;
  const double step = 1.0 / filter_scale;
  width_ = std::min(static_cast<int>(std::ceil(support)) * 2 + 1, high - low);
  weights_.resize(static_cast<size_t>(count_) * width_);
  row_.resize(width_);
  double* row = row_.data();
  int32_t* weight = weights_.data();
  for (int i = 0; i < count_; ++i, weight += width_) {
    const double center = from + (spec.first + i + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - support + 0.5), low);
    const int end = std::min(static_cast<int>(center + support + 0.5), high);
    const int taps = std::min(end - begin, width_);
    double sum = 0.0;
    for (int x = 0; x < taps; ++x) sum += row[x] = filter((x + begin - center + 0.5) * step);
    if (sum == 0.0) sum = 1.0;
    // Taps of weight 0 at the ends cost time and change nothing: they are left out.
    int skipped = 0, kept = 0;
    for (int x = 0; x < taps; ++x) {
      const double w = row[x] / sum * (1 << kPrecision);
      const auto rounded = static_cast<int32_t>(w < 0 ? w - 0.5 : w + 0.5);
      if (rounded == 0 && kept == 0 && x < taps - 1) {
        ++skipped;
      } else {
        weight[kept++] = rounded;
      }
    }
    while (kept > 1 && weight[kept - 1] == 0) --kept;
    starts_[i] = begin + skipped + origin;
    taps_[i] = kept;
  }
}

void Axis::prepare_smooth(const AxisSpec& spec) {
  switch (spec.filter) {
    case Filter::kBox: return prepare_filter(spec, 0.5, [](double x) { return box_filter(x); });
    case Filter::kHamming: return prepare_filter(spec, 1.0, [](double x) { return hamming_filter(x); });
    case Filter::kBicubic: return prepare_filter(spec, 2.0, [](double x) { return bicubic_filter(x); });
    case Filter::kLanczos: return prepare_filter(spec, 3.0, [](double x) { return lanczos_filter(x); });
    default: return prepare_filter(spec, 1.0, [](double x) { return bilinear_filter(x); });
  }
}

void Axis::reverse() {
  std::reverse(starts_.begin(), starts_.end());
  std::reverse(taps_.begin(), taps_.end());
  for (int i = 0, j = count_ - 1; i < j; ++i, --j) {
    std::swap_ranges(&weights_[static_cast<size_t>(i) * width_], &weights_[static_cast<size_t>(i) * width_] + width_,
                     &weights_[static_cast<size_t>(j) * width_]);
  }
}

}  // namespace fastdata
