// AVX-512 with VBMI and VNNI (Ice Lake, Zen 4 and newer). Exact: a 24-bit weight is split into three signed bytes (or
// into 16 and 8 bits where there are two taps), each part is multiplied and summed by itself in 32 bits, and the sums
// are put together: the same integer as the plain loop's, whatever the order.
#include "kernels_x86.hpp"
#include "plan_avx512.hpp"

#if FASTDATA_X86

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define FASTDATA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")))

namespace fastdata {
namespace {

using namespace avx512;

constexpr int32_t kHalf = 1 << (kPrecision - 1);
constexpr __mmask64 kEvenBytes = 0x5555555555555555;

FASTDATA_AVX512 inline __m512i gather(const uint8_t* source, __m512i index, bool wide) {
  const __m512i low = _mm512_loadu_si512(source);
  if (!wide) return _mm512_permutexvar_epi8(index, low);
  return _mm512_permutex2var_epi8(low, index, _mm512_loadu_si512(source + 64));
}

FASTDATA_AVX512 inline __m512i together(__m512i d0, __m512i d1, __m512i d2) {
  return _mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(d2, 8), d1), 8), d0);
}

FASTDATA_AVX512 inline void store16(uint8_t* target, __m512i sum) {
  const __m512i value = _mm512_max_epi32(_mm512_srai_epi32(sum, kPrecision), _mm512_setzero_si512());
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm512_cvtusepi32_epi8(value));
}

// kRows rows at once, so that a step's tables are loaded once for all of them.
template <bool kWide, int kRows>
FASTDATA_AVX512 void horizontal_pairs(const uint8_t* const* sources, uint8_t* const* targets, const Plan* plan) {
  const Step* step = steps_of(plan);
  const int32_t* base = bases_of(plan);
  const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(kHalf);
  for (int group = 0; group < plan->groups; ++group, ++step) {
    const __m512i index = _mm512_load_si512(step->index);
    const __m512i low_weight = _mm512_load_si512(step->digit[0]), high_weight = _mm512_load_si512(step->digit[1]);
    for (int row = 0; row < kRows; ++row) {
      const __m512i pixels = _mm512_maskz_mov_epi8(kEvenBytes, gather(sources[row] + base[group], index, kWide));
      const __m512i high = _mm512_dpwssd_epi32(zero, pixels, high_weight);
      const __m512i low = _mm512_dpwssd_epi32(half, pixels, low_weight);
      store16(targets[row] + kLanes * group, _mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
    }
  }
}

template <bool kWide, int kRows>
FASTDATA_AVX512 void horizontal_quads(const uint8_t* const* sources, uint8_t* const* targets, const Plan* plan) {
  const Step* step = steps_of(plan);
  const int32_t* base = bases_of(plan);
  for (int group = 0; group < plan->groups; ++group) {
    __m512i d0[kRows], d1[kRows], d2[kRows];
    for (int row = 0; row < kRows; ++row) {
      d0[row] = _mm512_set1_epi32(kHalf);
      d1[row] = d2[row] = _mm512_setzero_si512();
    }
    for (int quad = 0; quad < plan->quads; ++quad, ++step, ++base) {
      const __m512i index = _mm512_load_si512(step->index);
      const __m512i w0 = _mm512_load_si512(step->digit[0]), w1 = _mm512_load_si512(step->digit[1]);
      const __m512i w2 = _mm512_load_si512(step->digit[2]);
      for (int row = 0; row < kRows; ++row) {
        const __m512i pixels = gather(sources[row] + *base, index, kWide);
        d0[row] = _mm512_dpbusd_epi32(d0[row], pixels, w0);
        d1[row] = _mm512_dpbusd_epi32(d1[row], pixels, w1);
        d2[row] = _mm512_dpbusd_epi32(d2[row], pixels, w2);
      }
    }
    for (int row = 0; row < kRows; ++row) store16(targets[row] + kLanes * group, together(d0[row], d1[row], d2[row]));
  }
}

template <int kRows>
void horizontal_rows(const uint8_t* const* sources, uint8_t* const* targets, const Plan* plan) {
  if (plan->pairs) {
    plan->wide ? horizontal_pairs<true, kRows>(sources, targets, plan)
               : horizontal_pairs<false, kRows>(sources, targets, plan);
  } else {
    plan->wide ? horizontal_quads<true, kRows>(sources, targets, plan)
               : horizontal_quads<false, kRows>(sources, targets, plan);
  }
}

void horizontal(const uint8_t* const* sources, uint8_t* const* targets, int count, const Axis&, int,
                const void* memory) {
  const Plan* plan = static_cast<const Plan*>(aligned(memory));
  int row = 0;
  for (; row + 4 <= count; row += 4) horizontal_rows<4>(sources + row, targets + row, plan);
  for (; row < count; ++row) horizontal_rows<1>(sources + row, targets + row, plan);
}

FASTDATA_AVX512 inline __m512i load(const uint8_t* row) { return _mm512_loadu_si512(row); }

FASTDATA_AVX512 inline void store64(uint8_t* target, __mmask64 mask, const __m512i (&sum)[4]) {
  const __m512i low = _mm512_packs_epi32(_mm512_srai_epi32(sum[0], kPrecision), _mm512_srai_epi32(sum[1], kPrecision));
  const __m512i high = _mm512_packs_epi32(_mm512_srai_epi32(sum[2], kPrecision), _mm512_srai_epi32(sum[3], kPrecision));
  _mm512_mask_storeu_epi8(target, mask, _mm512_packus_epi16(low, high));
}

inline __mmask64 mask_of(size_t left) { return left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1; }

FASTDATA_AVX512 void vertical_pair(const uint8_t* const* rows, const int32_t* weight, uint8_t* target, size_t n) {
  const __m512i low_weight = _mm512_set1_epi32((weight[0] & 255) | (weight[1] & 255) << 16);
  const __m512i high_weight = _mm512_set1_epi32(
      static_cast<int>(static_cast<uint32_t>((weight[0] >> 8) & 0xffff) | static_cast<uint32_t>(weight[1] >> 8) << 16));
  const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(kHalf);
  for (size_t at = 0; at < n; at += 64) {
    const __m512i a = load(rows[0] + at), b = load(rows[1] + at);
    const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i words[4] = {_mm512_unpacklo_epi8(ab_low, zero), _mm512_unpackhi_epi8(ab_low, zero),
                              _mm512_unpacklo_epi8(ab_high, zero), _mm512_unpackhi_epi8(ab_high, zero)};
    __m512i sum[4];
    for (int k = 0; k < 4; ++k) {
      const __m512i high = _mm512_dpwssd_epi32(zero, words[k], high_weight);
      sum[k] = _mm512_add_epi32(_mm512_slli_epi32(high, 8), _mm512_dpwssd_epi32(half, words[k], low_weight));
    }
    store64(target + at, mask_of(n - at), sum);
  }
}

// Four rows' bytes side by side, so that one dot product takes one byte of each.
FASTDATA_AVX512 inline void interleave(__m512i a, __m512i b, __m512i c, __m512i d, __m512i (&bytes)[4]) {
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
  bytes[0] = _mm512_unpacklo_epi16(ab_low, cd_low);
  bytes[1] = _mm512_unpackhi_epi16(ab_low, cd_low);
  bytes[2] = _mm512_unpacklo_epi16(ab_high, cd_high);
  bytes[3] = _mm512_unpackhi_epi16(ab_high, cd_high);
}

FASTDATA_AVX512 inline __m512i word(uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }

FASTDATA_AVX512 void vertical_quad(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target,
                                   size_t n) {
  uint32_t digits[3];
  split_quad(weight, taps, digits);
  const __m512i w0 = word(digits[0]), w1 = word(digits[1]), w2 = word(digits[2]);
  const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(kHalf);
  const uint8_t* last = taps > 3 ? rows[3] : rows[0];  // with three taps its weight is 0
  for (size_t at = 0; at < n; at += 64) {
    __m512i bytes[4], sum[4];
    interleave(load(rows[0] + at), load(rows[1] + at), load(rows[2] + at), load(last + at), bytes);
    for (int k = 0; k < 4; ++k) {
      sum[k] = together(_mm512_dpbusd_epi32(half, bytes[k], w0), _mm512_dpbusd_epi32(zero, bytes[k], w1),
                        _mm512_dpbusd_epi32(zero, bytes[k], w2));
    }
    store64(target + at, mask_of(n - at), sum);
  }
}

FASTDATA_AVX512 void vertical_quads(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target,
                                    size_t n) {
  const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(kHalf);
  for (size_t at = 0; at < n; at += 64) {
    __m512i d0[4] = {half, half, half, half}, d1[4] = {zero, zero, zero, zero}, d2[4] = {zero, zero, zero, zero};
    for (int first = 0; first < taps; first += 4) {
      const int count = std::min(taps - first, 4);
      uint32_t digits[3];
      split_quad(weight + first, count, digits);
      const __m512i b = count > 1 ? load(rows[first + 1] + at) : zero;
      const __m512i c = count > 2 ? load(rows[first + 2] + at) : zero;
      const __m512i d = count > 3 ? load(rows[first + 3] + at) : zero;
      __m512i bytes[4];
      interleave(load(rows[first] + at), b, c, d, bytes);
      const __m512i w0 = word(digits[0]), w1 = word(digits[1]), w2 = word(digits[2]);
      for (int k = 0; k < 4; ++k) {
        d0[k] = _mm512_dpbusd_epi32(d0[k], bytes[k], w0);
        d1[k] = _mm512_dpbusd_epi32(d1[k], bytes[k], w1);
        d2[k] = _mm512_dpbusd_epi32(d2[k], bytes[k], w2);
      }
    }
    __m512i sum[4];
    for (int k = 0; k < 4; ++k) sum[k] = together(d0[k], d1[k], d2[k]);
    store64(target + at, mask_of(n - at), sum);
  }
}

void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target, size_t n) {
  if (taps == 2) {
    vertical_pair(rows, weight, target, n);
  } else if (taps == 3 || taps == 4) {
    vertical_quad(rows, weight, taps, target, n);
  } else {
    vertical_quads(rows, weight, taps, target, n);
  }
}

// For each plane: which byte of the first 128 (or of the last 64, with 64 added) is pixel i's.
struct SplitTable {
  alignas(64) uint8_t index[3][64];
  uint64_t third[3];  // bit i: pixel i's byte lies in the last 64
};

constexpr SplitTable make_split_table() {
  SplitTable table{};
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 64; ++i) {
      const int at = 3 * i + c;
      table.index[c][i] = static_cast<uint8_t>(at < 128 ? at : at - 128);
      if (at >= 128) table.third[c] |= uint64_t{1} << i;
    }
  }
  return table;
}

constexpr SplitTable kSplit = make_split_table();

FASTDATA_AVX512 void split(const uint8_t* pixels, uint8_t* const (&planes)[3], size_t count) {
  for (size_t at = 0; at < count; at += 64, pixels += 192) {
    const __mmask64 mask = mask_of(count - at);
    const bool all = count - at >= 22;  // fewer lie in the first 64 bytes
    const __m512i a = load(pixels), b = all ? load(pixels + 64) : a;
    const __m512i c = count - at >= 43 ? load(pixels + 128) : a;
    for (int plane = 0; plane < 3; ++plane) {
      const __m512i index = _mm512_load_si512(kSplit.index[plane]);
      const __m512i low = _mm512_permutex2var_epi8(a, index, b);
      const __m512i value = _mm512_mask_permutexvar_epi8(low, kSplit.third[plane], index, c);
      _mm512_mask_storeu_epi8(planes[plane] + at, mask, value);
    }
  }
}

}  // namespace

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vnni");
}

const Kernels& avx512_kernels() {
  static const Kernels kernels{"avx512", horizontal, vertical, split, sums_avx2, plan_size, make_plan};
  return kernels;
}

}  // namespace fastdata

#endif  // FASTDATA_X86
