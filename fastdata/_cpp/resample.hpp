// Source rows in, output rows out, in two passes as Pillow makes them: each rounds to 8 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "axis.hpp"
#include "kernels.hpp"

namespace fastdata {

class Resampler {
 public:
  explicit Resampler(const Kernels& kernels) : kernels_(kernels) {}

  const Kernels& kernels() const { return kernels_; }

  Axis x, y;  // prepared by the caller before begin()

  // Starts a picture; may throw std::bad_alloc. vertical_first: the vertical pass comes before the horizontal one.
  void begin(int channels, bool vertical_first);
  // Takes `count` source rows from number `row` on (y.source_low() <= row < y.source_high(), each once, at most
  // kRowsAtOnce): pixels from x.source_low() to x.source_high(), with kSlack readable bytes behind them.
  void push(int row, const uint8_t* const* pixels, int count) noexcept;
  // Makes output row i (0 <= i < y.count()), x.count() pixels, in `target` (nothing is written behind it), or returns
  // a row of its own, valid until the next call.
  const uint8_t* output(int i, uint8_t* target) noexcept;

 private:
  void plan();
  void horizontal(const uint8_t* const* sources, uint8_t* const* targets, int count) noexcept;
  uint8_t* row_at(int row) { return rows_.data() + static_cast<size_t>(row - y.source_low()) * stride_; }

  const Kernels& kernels_;
  int channels_ = 0;
  bool vertical_first_ = false;
  size_t stride_ = 0;  // of kept rows
  size_t kept_ = 0;    // bytes of a kept row: before or after the horizontal pass
  std::vector<uint8_t> rows_, narrow_, wide_;
  std::vector<const uint8_t*> taps_;
  std::vector<uint64_t> plan_;
  uint64_t plan_version_ = 0;
  int plan_channels_ = 0;
  bool planned_ = false;
};

}  // namespace fastdata
