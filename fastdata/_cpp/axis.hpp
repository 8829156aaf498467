// Which source pixels, with which weights, make each output pixel of one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "image_job.hpp"

namespace fastdata {

// Weights are integers of kPrecision bits, as in Pillow's src/libImaging/Resample.c (32 - 8 - 2).
constexpr int kPrecision = 22;

// What one axis asks for. low, high: the source pixels that exist (support is cut there and weights renormalised).
struct AxisSpec {
  double from, to;   // the window, source pixels
  int low, high;     // the box, source pixels
  int virtual_size;  // size of the whole resampled picture
  int first, count;  // the virtual pixels that are wanted, all inside the virtual picture
  bool reversed;     // mirrored: the last comes first
  Filter filter;
  bool antialias;
};

// One axis, computed; its memory is kept from image to image.
class Axis {
 public:
  // Computes bounds and weights. false: the specification is impossible (nothing of the box is under the window).
  bool prepare(const AxisSpec& spec);

  int count() const { return count_; }
  // Distance of two rows of weights (what lies behind a pixel's taps is undefined), and most taps that any output pixel uses; then each pixel's start, taps and weights.
  int width() const { return width_; }
  int most_taps() const { return most_taps_; }
  const int32_t* starts() const { return starts_.data(); }
  const int32_t* taps() const { return taps_.data(); }
  const int32_t* weights() const { return weights_.data(); }
  // The range of source pixels that is used.
  int source_low() const { return source_low_; }
  int source_high() const { return source_high_; }
  // Every output pixel is one source pixel, in order and without gaps.
  bool identity() const { return identity_; }
  // Changes whenever the contents change: what was derived from them can be kept.
  uint64_t version() const { return version_; }

 private:
  void prepare_nearest(const AxisSpec& spec);
  void prepare_smooth(const AxisSpec& spec);
  template <typename Filter>
  void prepare_filter(const AxisSpec& spec, double radius, Filter filter);
  void reverse();

  AxisSpec spec_{};
  int count_ = 0, width_ = 0, most_taps_ = 0, source_low_ = 0, source_high_ = 0;
  bool identity_ = false;
  uint64_t version_ = 0;
  std::vector<int32_t> starts_, taps_, weights_;
  std::vector<double> row_;
};

}  // namespace fastdata
