// Channel sums with AVX2. The bytes of two half blocks meet in pairs, which are multiplied and added up in one step.
#include "kernels_x86.hpp"

#if FASTDATA_X86

#include <immintrin.h>

#include <algorithm>

#define FASTDATA_AVX2 __attribute__((target("avx2")))

namespace fastdata {
namespace {

constexpr size_t kVector = 32;
// Blocks of one stretch: its bytes stay in the first cache, and 2 * 255 * 128 fits into the 16 bits that values have.
constexpr size_t kStretch = 128;

FASTDATA_AVX2 inline __m256i load(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

// Unpacking works in halves of a register, so element e of words[k] comes from byte 16 * (e / 4) + 4 * k + e % 4, and
// element e of bytes[k] from byte 16 * (e / 8) + 8 * k + e % 8.
FASTDATA_AVX2 void add_to_lanes(const __m256i (&bytes)[2], const __m256i (&words)[4], uint32_t* value,
                                uint32_t* square) {
  alignas(32) uint16_t few[16];
  alignas(32) uint32_t many[8];
  for (int k = 0; k < 2; ++k) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(few), bytes[k]);
    for (int e = 0; e < 16; ++e) value[16 * (e / 8) + 8 * k + e % 8] += few[e];
  }
  for (int k = 0; k < 4; ++k) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(many), words[k]);
    for (int e = 0; e < 8; ++e) square[16 * (e / 4) + 4 * k + e % 4] += many[e];
  }
}

// One register's worth of lanes, over all blocks of a stretch.
FASTDATA_AVX2 void add_stretch(const uint8_t* data, size_t blocks, uint32_t* value, uint32_t* square) {
  const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
  __m256i bytes[2] = {zero, zero}, words[4] = {zero, zero, zero, zero};
  for (size_t block = 0; block < blocks; ++block, data += kSumBlock) {
    const __m256i a = load(data), b = load(data + kSumLanes);
    const __m256i pairs[2] = {_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)};
    for (int k = 0; k < 2; ++k) {
      bytes[k] = _mm256_add_epi16(bytes[k], _mm256_maddubs_epi16(pairs[k], one));
      const __m256i low = _mm256_unpacklo_epi8(pairs[k], zero), high = _mm256_unpackhi_epi8(pairs[k], zero);
      words[2 * k] = _mm256_add_epi32(words[2 * k], _mm256_madd_epi16(low, low));
      words[2 * k + 1] = _mm256_add_epi32(words[2 * k + 1], _mm256_madd_epi16(high, high));
    }
  }
  add_to_lanes(bytes, words, value, square);
}

}  // namespace

void sums_avx2(const uint8_t* data, size_t blocks, uint32_t* value, uint32_t* square) {
  for (; blocks > 0; data += std::min(blocks, kStretch) * kSumBlock, blocks -= std::min(blocks, kStretch)) {
    for (size_t lane = 0; lane < kSumLanes; lane += kVector) {
      add_stretch(data + lane, std::min(blocks, kStretch), value + lane, square + lane);
    }
  }
}

}  // namespace fastdata

#endif  // FASTDATA_X86
