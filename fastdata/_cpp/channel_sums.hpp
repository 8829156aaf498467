// Sums over a picture, for mean and standard deviation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

namespace fastdata {

// Adds up the values and the squares of `pixels` pixels of `channels` (1 or 3) bytes, per channel; exact.
void channel_sums(const Kernels& kernels, const uint8_t* data, size_t pixels, int channels, uint64_t* values,
                  uint64_t* squares) noexcept;

}  // namespace fastdata
