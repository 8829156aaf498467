#include "channel_sums.hpp"

#include <algorithm>

namespace fastdata {

void channel_sums(const Kernels& kernels, const uint8_t* data, size_t pixels, int channels, uint64_t* values,
                  uint64_t* squares) noexcept {
  std::fill(values, values + channels, 0);
  std::fill(squares, squares + channels, 0);
  const uint8_t* const end = data + pixels * channels;
  while (static_cast<size_t>(end - data) >= kSumBlock) {
    uint32_t value[kSumLanes] = {}, square[kSumLanes] = {};
    const size_t blocks = std::min(static_cast<size_t>(end - data) / kSumBlock, kSumBlocks);
    kernels.sums(data, blocks, value, square);
    data += blocks * kSumBlock;
    for (size_t lane = 0; lane < kSumLanes; ++lane) {
      values[lane % channels] += value[lane];
      squares[lane % channels] += square[lane];
    }
  }
  for (size_t i = 0; data < end; ++data, ++i) {
    values[i % channels] += *data;
    squares[i % channels] += static_cast<uint64_t>(*data) * *data;
  }
}

}  // namespace fastdata
