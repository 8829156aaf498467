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

// The low 8 and the high 16 bits of two weights, as 16-bit numbers.
struct Pair {
  int32_t low, high;
};

int32_t both(int32_t first, int32_t second) {
  return static_cast<int32_t>(static_cast<uint32_t>(first & 0xffff) | static_cast<uint32_t>(second & 0xffff) << 16);
}

Pair pair_of(const int32_t* weight, int taps) {
  const int32_t first = taps > 0 ? weight[0] : 0, second = taps > 1 ? weight[1] : 0;
  return {both(first & 255, second & 255), both(first >> 8, second >> 8)};
}

// Two neighbouring output pixels, one in each half of the registers, and up to four taps of both: where their bytes
// begin, and the weights of taps 0 and 1, then of taps 2 and 3.
struct alignas(32) Step {
  int32_t weight[2][2][8];  // taps, low or high, lane
  int32_t offset[2];
};

struct alignas(32) Plan {
  int32_t quads;  // steps for each two output pixels
  bool short_steps;  // no output pixel has more than two taps
};

template <typename Pointer>
Pointer aligned(Pointer pointer) {
  return reinterpret_cast<Pointer>((reinterpret_cast<uintptr_t>(pointer) + 31) & ~uintptr_t{31});
}

Step* steps_of(Plan* plan) { return reinterpret_cast<Step*>(plan + 1); }
const Step* steps_of(const Plan* plan) { return reinterpret_cast<const Step*>(plan + 1); }

int quads_of(const Axis& axis) { return (axis.most_taps() + 3) / 4; }

size_t plan_size(const Axis& axis, int) {
  return sizeof(Plan) + static_cast<size_t>((axis.count() + 1) / 2) * quads_of(axis) * sizeof(Step) + 32;
}

void make_half(const Axis& axis, int channels, int pixel, int quad, int half, Step& step) {
  const bool there = pixel < axis.count();  // an odd count: the last half has weights 0
  const int taps = there ? axis.taps()[pixel] - 4 * quad : 0;
  const int32_t* weight = axis.weights() + static_cast<size_t>(there ? pixel : 0) * axis.width() + 4 * quad;
  const int start = taps > 0 ? axis.starts()[pixel] - axis.source_low() + 4 * quad : 0;
  step.offset[half] = start * channels;
  for (int k = 0; k < 2; ++k) {
    const Pair pair = taps > 2 * k ? pair_of(weight + 2 * k, taps - 2 * k) : Pair{0, 0};
    std::fill_n(&step.weight[k][0][4 * half], 4, pair.low);
    std::fill_n(&step.weight[k][1][4 * half], 4, pair.high);
  }
}

bool make_plan(const Axis& axis, int channels, void* memory) {
  Plan* plan = static_cast<Plan*>(aligned(memory));
  plan->quads = quads_of(axis);
  plan->short_steps = axis.most_taps() <= 2;
  Step* step = steps_of(plan);
  for (int i = 0; i < axis.count(); i += 2) {
    for (int quad = 0; quad < plan->quads; ++quad, ++step) {
      make_half(axis, channels, i, quad, 0, *step);
      make_half(axis, channels, i + 1, quad, 1, *step);
    }
  }
  return true;
}

// Two taps of r, g, b (or of grey) side by side as 16-bit numbers, in both halves.
template <int kChannels, int kTap>
FASTDATA_AVX2 inline __m256i choose() {
  constexpr char a = kTap * kChannels, b = a + kChannels;
  const __m128i half = kChannels == 3 ? _mm_setr_epi8(a, -1, b, -1, a + 1, -1, b + 1, -1, a + 2, -1, b + 2, -1, -1, -1, -1, -1)
                                      : _mm_setr_epi8(a, -1, b, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  return _mm256_broadcastsi128_si256(half);
}

FASTDATA_AVX2 inline __m256i weights_at(const int32_t (&weight)[8]) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(weight));
}

template <int kChannels, bool kShort, int kRows>
FASTDATA_AVX2 void horizontal(const uint8_t* const* sources, uint8_t* const* targets, int count, const Plan* plan) {
  const __m256i first_two = choose<kChannels, 0>(), last_two = choose<kChannels, 2>();
  const Step* step = steps_of(plan);
  for (int i = 0; i < count; i += 2) {
    __m256i low[kRows], high[kRows];
    for (int row = 0; row < kRows; ++row) low[row] = _mm256_set1_epi32(kHalf), high[row] = _mm256_setzero_si256();
    for (int quad = 0; quad < plan->quads; ++quad, ++step) {
      for (int row = 0; row < kRows; ++row) {
        const auto* a = reinterpret_cast<const __m128i*>(sources[row] + step->offset[0]);
        const auto* b = reinterpret_cast<const __m128i*>(sources[row] + step->offset[1]);
        const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b), 1);
        const __m256i front = _mm256_shuffle_epi8(bytes, first_two);
        low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(front, weights_at(step->weight[0][0])));
        high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(front, weights_at(step->weight[0][1])));
        if (kShort) continue;
        const __m256i back = _mm256_shuffle_epi8(bytes, last_two);
        low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(back, weights_at(step->weight[1][0])));
        high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(back, weights_at(step->weight[1][1])));
      }
    }
    for (int row = 0; row < kRows; ++row) {
      const __m256i sum = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high[row], 8), low[row]), kPrecision);
      const __m256i out = _mm256_packus_epi16(_mm256_packs_epi32(sum, sum), sum);
      const int32_t first = _mm256_extract_epi32(out, 0), second = _mm256_extract_epi32(out, 4);
      std::memcpy(targets[row] + i * kChannels, &first, 4);
      std::memcpy(targets[row] + (i + 1) * kChannels, &second, 4);
    }
  }
}

template <int kChannels, int kRows>
void horizontal_rows(const uint8_t* const* sources, uint8_t* const* targets, int count, const Plan* plan) {
  plan->short_steps ? horizontal<kChannels, true, kRows>(sources, targets, count, plan)
                    : horizontal<kChannels, false, kRows>(sources, targets, count, plan);
}

void horizontal_any(const uint8_t* const* sources, uint8_t* const* targets, int rows, const Axis& axis, int channels,
                    const void* memory) {
  const Plan* plan = static_cast<const Plan*>(aligned(memory));
  int row = 0;
  for (; row + 2 <= rows; row += 2) {
    channels == 1 ? horizontal_rows<1, 2>(sources + row, targets + row, axis.count(), plan)
                  : horizontal_rows<3, 2>(sources + row, targets + row, axis.count(), plan);
  }
  if (row == rows) return;
  channels == 1 ? horizontal_rows<1, 1>(sources + row, targets + row, axis.count(), plan)
                : horizontal_rows<3, 1>(sources + row, targets + row, axis.count(), plan);
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
  static const Kernels kernels{"avx2", horizontal_any, vertical, split, sums_avx2, plan_size, make_plan};
  return kernels;
}

}  // namespace fastdata

#endif  // FASTDATA_X86
