#include "channel_sums.hpp"

#include <algorithm>

namespace fastdata {
namespace {

// Lanes that are added to side by side: whole vectors of every instruction set, and whole pixels of 1 and of 3 channels.
constexpr size_t kLanes = 96;
// After so many blocks a lane is emptied: 255 * 255 * 65,536 still fits into its 32 bits.
constexpr size_t kBlocks = 65'536;

}  // namespace

void channel_sums(const uint8_t* data, size_t pixels, int channels, uint64_t* values, uint64_t* squares) noexcept {
  std::fill(values, values + channels, 0);
  std::fill(squares, squares + channels, 0);
  const uint8_t* const end = data + pixels * channels;
  while (static_cast<size_t>(end - data) >= kLanes) {
    uint32_t value[kLanes] = {}, square[kLanes] = {};
    const size_t blocks = std::min(static_cast<size_t>(end - data) / kLanes, kBlocks);
    for (size_t block = 0; block < blocks; ++block, data += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const uint16_t v = data[lane];
        value[lane] += v;
        square[lane] += static_cast<uint16_t>(v * v);
      }
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
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
