// Source rows in, output rows out: horizontal pass row by row as they come, then the vertical pass.
#pragma once

#include <cstdint>
#include <vector>

#include "axis.hpp"
#include "kernels.hpp"

namespace fastdata {

class Resampler {
 public:
  explicit Resampler(const Kernels& kernels) : kernels_(kernels) {}

  Axis x, y;  // prepared by the caller before begin()

  // Starts a picture; may throw std::bad_alloc.
  void begin(int channels);
  // Takes the source row number `row` (y.source_low() <= row < y.source_high(), each once): pixels from
  // x.source_low() to x.source_high(), with kSlack readable bytes behind them.
  void push(int row, const uint8_t* pixels) noexcept;
  // Makes output row i (0 <= i < y.count()), x.count() pixels. Returns `target` or, where no work is needed, a row of
  // its own; target has kSlack writable bytes behind the row when `padded`, none otherwise.
  const uint8_t* output(int i, uint8_t* target) noexcept;

 private:
  uint8_t* row_at(int row) { return rows_.data() + static_cast<size_t>(row - y.source_low()) * stride_; }

  const Kernels& kernels_;
  int channels_ = 0;
  size_t stride_ = 0, bytes_ = 0;
  std::vector<uint8_t> rows_;
  std::vector<const uint8_t*> taps_;
  std::vector<uint64_t> plan_;
  uint64_t plan_version_ = 0;
  int plan_channels_ = 0;
  bool planned_ = false;
};

}  // namespace fastdata
