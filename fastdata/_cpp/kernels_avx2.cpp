// AVX2. Exact: a weight is split into its high 16 and its low 8 bits, both are multiplied and summed by themselves in 32
// bits, and the sums are put together: the same integer as the plain loop's.
#include "kernels_x86.hpp"

#if FASTDATA_X86

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define FASTDATA_AVX2 __attribute__((target("avx2")))

namespace fastdata {
namespace {

constexpr int32_t kHalf = 1 << (kPrecision - 1);

// One output pixel of the horizontal pass: its source bytes and, for two taps at a time, both halves of the weights.
struct Pair {
  int32_t low, high;  // two 16-bit numbers each
};

struct Plan {
  int32_t pairs;
};

Pair* pairs_of(Plan* plan) { return reinterpret_cast<Pair*>(plan + 2); }
const Pair* pairs_of(const Plan* plan) { return reinterpret_cast<const Pair*>(plan + 2); }

int pairs_of(const Axis& axis) { return (axis.most_taps() + 1) / 2; }

size_t plan_size(const Axis& axis, int) {
  return 2 * sizeof(Plan) + static_cast<size_t>(axis.count() + 1) * pairs_of(axis) * sizeof(Pair);
}

int32_t both(int32_t first, int32_t second) {
  return static_cast<int32_t>(static_cast<uint32_t>(first & 0xffff) | static_cast<uint32_t>(second & 0xffff) << 16);
}

Pair pair_of(const int32_t* weight, int taps) {
  const int32_t first = taps > 0 ? weight[0] : 0, second = taps > 1 ? weight[1] : 0;
  return {both(first & 255, second & 255), both(first >> 8, second >> 8)};
}

bool make_plan(const Axis& axis, int, void* memory) {
  Plan* plan = static_cast<Plan*>(memory);
  plan->pairs = pairs_of(axis);
  Pair* pair = pairs_of(plan);
  for (int i = 0; i < axis.count(); ++i) {
    const int32_t* weight = axis.weights() + static_cast<size_t>(i) * axis.width();
    for (int k = 0; k < plan->pairs; ++k) *pair++ = pair_of(weight + 2 * k, axis.taps()[i] - 2 * k);
  }
  for (int k = 0; k < plan->pairs; ++k) *pair++ = {0, 0};  // one pixel more, for an odd count
  return true;
}

FASTDATA_AVX2 inline __m256i load_two(const uint8_t* first, const uint8_t* second) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(first))),
                                 _mm_loadl_epi64(reinterpret_cast<const __m128i*>(second)), 1);
}

FASTDATA_AVX2 inline __m256i spread_two(int32_t first, int32_t second) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(first)), _mm_set1_epi32(second), 1);
}

// Two output pixels at a time, one in each half of the register; lanes r, g, b and one that is not used.
template <int kChannels>
FASTDATA_AVX2 void horizontal(const uint8_t* source, uint8_t* target, const Axis& axis, const Plan* plan) {
  const __m256i choose =
      kChannels == 3
          ? _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0, -1, 3, -1, 1, -1, 4, -1, 2, -1,
                             5, -1, -1, -1, -1, -1)
          : _mm256_setr_epi8(0, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, -1, 1, -1, -1, -1, -1, -1,
                             -1, -1, -1, -1, -1, -1, -1, -1);
  const Pair* pair = pairs_of(plan);
  const int count = axis.count(), pairs = plan->pairs;
  for (int i = 0; i < count; i += 2, pair += 2 * pairs) {
    const int next = std::min(i + 1, count - 1);
    const uint8_t* first = source + static_cast<ptrdiff_t>(axis.starts()[i] - axis.source_low()) * kChannels;
    const uint8_t* second = source + static_cast<ptrdiff_t>(axis.starts()[next] - axis.source_low()) * kChannels;
    __m256i low = _mm256_set1_epi32(kHalf), high = _mm256_setzero_si256();
    for (int k = 0; k < pairs; ++k) {
      // A pixel with fewer taps than the longest has weights 0 there, and reads what lies behind: nearer than kSlack.
      const int step = 2 * k * kChannels;
      const int first_step = std::min(step, std::max(axis.taps()[i] - 1, 0) * kChannels);
      const int second_step = std::min(step, std::max(axis.taps()[next] - 1, 0) * kChannels);
      const __m256i pixels = _mm256_shuffle_epi8(load_two(first + first_step, second + second_step), choose);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, spread_two(pair[k].low, pair[pairs + k].low)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, spread_two(pair[k].high, pair[pairs + k].high)));
    }
    const __m256i sum = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, 8), low), kPrecision);
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sum, sum), sum);
    const uint32_t a = static_cast<uint32_t>(_mm256_extract_epi32(bytes, 0));
    const uint32_t b = static_cast<uint32_t>(_mm256_extract_epi32(bytes, 4));
    std::memcpy(target + i * kChannels, &a, 4);
    std::memcpy(target + (i + 1) * kChannels, &b, 4);
  }
}

void horizontal_any(const uint8_t* const* sources, uint8_t* const* targets, int count, const Axis& axis, int channels,
                    const void* memory) {
  const Plan* plan = static_cast<const Plan*>(memory);
  for (int i = 0; i < count; ++i) {
    channels == 1 ? horizontal<1>(sources[i], targets[i], axis, plan) : horizontal<3>(sources[i], targets[i], axis, plan);
  }
}

FASTDATA_AVX2 inline __m256i load(const uint8_t* row) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
}

// 32 output bytes, into `bytes`.
FASTDATA_AVX2 inline __m256i sum_rows(const uint8_t* const* rows, const int32_t* weight, int taps, size_t at) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i low[4], high[4];
  for (int k = 0; k < 4; ++k) low[k] = _mm256_set1_epi32(kHalf), high[k] = zero;
  for (int t = 0; t < taps; t += 2) {
    const Pair pair = pair_of(weight + t, taps - t);
    const __m256i a = load(rows[t] + at), b = t + 1 < taps ? load(rows[t + 1] + at) : zero;
    const __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
    const __m256i words[4] = {_mm256_unpacklo_epi8(ab_low, zero), _mm256_unpackhi_epi8(ab_low, zero),
                              _mm256_unpacklo_epi8(ab_high, zero), _mm256_unpackhi_epi8(ab_high, zero)};
    const __m256i low_weight = _mm256_set1_epi32(pair.low), high_weight = _mm256_set1_epi32(pair.high);
    for (int k = 0; k < 4; ++k) {
      low[k] = _mm256_add_epi32(low[k], _mm256_madd_epi16(words[k], low_weight));
      high[k] = _mm256_add_epi32(high[k], _mm256_madd_epi16(words[k], high_weight));
    }
  }
  __m256i sum[4];
  for (int k = 0; k < 4; ++k) {
    sum[k] = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high[k], 8), low[k]), kPrecision);
  }
  return _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3]));
}

FASTDATA_AVX2 void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target, size_t n) {
  size_t at = 0;
  for (; at + 32 <= n; at += 32) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + at), sum_rows(rows, weight, taps, at));
  }
  if (at == n) return;
  alignas(32) uint8_t last[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(last), sum_rows(rows, weight, taps, at));
  std::memcpy(target + at, last, n - at);
}

// Where in three loads of 16 bytes a plane's 16 bytes lie; -1: in another load.
struct SplitTable {
  alignas(16) int8_t index[3][3][16];  // plane, load, pixel
};

constexpr SplitTable make_split_table() {
  SplitTable table{};
  for (int plane = 0; plane < 3; ++plane) {
    for (int part = 0; part < 3; ++part) {
      for (int i = 0; i < 16; ++i) {
        const int at = 3 * i + plane - 16 * part;
        table.index[plane][part][i] = static_cast<int8_t>(at >= 0 && at < 16 ? at : -1);
      }
    }
  }
  return table;
}

constexpr SplitTable kSplit = make_split_table();

FASTDATA_AVX2 inline __m128i chosen(__m128i bytes, int plane, int part) {
  return _mm_shuffle_epi8(bytes, *reinterpret_cast<const __m128i*>(kSplit.index[plane][part]));
}

FASTDATA_AVX2 inline __m128i plane_of(__m128i a, __m128i b, __m128i c, int plane) {
  return _mm_or_si128(chosen(a, plane, 0), _mm_or_si128(chosen(b, plane, 1), chosen(c, plane, 2)));
}

FASTDATA_AVX2 void split(const uint8_t* pixels, uint8_t* const (&planes)[3], size_t count) {
  size_t at = 0;
  for (; at + 16 <= count; at += 16, pixels += 48) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 32));
    for (int plane = 0; plane < 3; ++plane) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(planes[plane] + at), plane_of(a, b, c, plane));
    }
  }
  for (; at < count; ++at, pixels += 3) {
    for (int plane = 0; plane < 3; ++plane) planes[plane][at] = pixels[plane];
  }
}

}  // namespace

bool has_avx2() { return __builtin_cpu_supports("avx2"); }

const Kernels& avx2_kernels() {
  static const Kernels kernels{"avx2", horizontal_any, vertical, split, plan_size, make_plan};
  return kernels;
}

}  // namespace fastdata

#endif  // FASTDATA_X86
