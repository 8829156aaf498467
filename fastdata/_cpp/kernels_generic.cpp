// Plain loops: what every processor can do, and the definition of what the others must give.
#include <algorithm>
#include <cstring>

#include "kernels.hpp"

namespace fastdata {
namespace {

constexpr int32_t kHalf = 1 << (kPrecision - 1);

inline uint8_t clip8(int32_t sum) {
  const int32_t value = sum >> kPrecision;
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

template <int kChannels>
void horizontal(const uint8_t* source, uint8_t* target, const Axis& axis) {
  const int32_t* weight = axis.weights();
  for (int i = 0; i < axis.count(); ++i, weight += axis.width(), target += kChannels) {
    const uint8_t* pixel = source + static_cast<ptrdiff_t>(axis.starts()[i] - axis.source_low()) * kChannels;
    int32_t sum[kChannels];
    std::fill(sum, sum + kChannels, kHalf);
    for (int t = 0; t < axis.taps()[i]; ++t, pixel += kChannels) {
      for (int c = 0; c < kChannels; ++c) sum[c] += pixel[c] * weight[t];
    }
    for (int c = 0; c < kChannels; ++c) target[c] = clip8(sum[c]);
  }
}

void horizontal_any(const uint8_t* const* sources, uint8_t* const* targets, int count, const Axis& axis, int channels,
                    const void*) {
  for (int i = 0; i < count; ++i) {
    channels == 1 ? horizontal<1>(sources[i], targets[i], axis) : horizontal<3>(sources[i], targets[i], axis);
  }
}

void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target, size_t n) {
  constexpr size_t kBlock = 256;
  int32_t sum[kBlock];
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t count = std::min(kBlock, n - at);
    std::fill(sum, sum + count, kHalf);
    for (int t = 0; t < taps; ++t) {
      const uint8_t* row = rows[t] + at;
      const int32_t w = weight[t];
      for (size_t x = 0; x < count; ++x) sum[x] += row[x] * w;
    }
    for (size_t x = 0; x < count; ++x) target[at + x] = clip8(sum[x]);
  }
}

void split(const uint8_t* pixels, uint8_t* const (&planes)[3], size_t count) {
  for (int c = 0; c < 3; ++c) {
    for (size_t i = 0; i < count; ++i) planes[c][i] = pixels[3 * i + c];
  }
}

void sums(const uint8_t* data, size_t blocks, uint32_t* value, uint32_t* square) {
  for (const uint8_t* const end = data + blocks * kSumBlock; data < end; data += kSumLanes) {
    for (size_t lane = 0; lane < kSumLanes; ++lane) {
      const uint16_t v = data[lane];
      value[lane] += v;
      square[lane] += static_cast<uint16_t>(v * v);
    }
  }
}

}  // namespace

const Kernels& generic_kernels() {
  static const Kernels kernels{"generic", horizontal_any, vertical, split, sums, nullptr, nullptr};
  return kernels;
}

}  // namespace fastdata
