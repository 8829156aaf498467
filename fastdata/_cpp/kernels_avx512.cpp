// AVX-512 with VBMI and VNNI (Ice Lake, Zen 4 and newer). Exact: a 24-bit weight is split into three signed bytes (or
// into 16 and 8 bits where there are two taps), each part is multiplied and summed by itself in 32 bits, and the sums
// are put together: the same integer as the plain loop's, whatever the order.
#include "kernels_x86.hpp"

#if FASTDATA_X86

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define FASTDATA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")))

namespace fastdata {
namespace {

constexpr int32_t kHalf = 1 << (kPrecision - 1);
constexpr int kLanes = 16;    // output bytes (pixel and channel) of a group
constexpr int kReach = 128;   // source bytes that one permutation can choose from
constexpr __mmask64 kEvenBytes = 0x5555555555555555;

// One group of 16 outputs and up to four of their taps. With pairs: two taps, index bytes at even places, `digit` 0 and
// 1 are the low 8 and the high 16 bits of the weights as 16-bit numbers.
struct alignas(64) Step {
  uint8_t index[64];
  int8_t digit[3][64];
};

struct alignas(64) Plan {
  int32_t groups, quads;
  bool pairs, wide;  // wide: some permutation needs more than 64 source bytes
};

template <typename Pointer>
Pointer aligned(Pointer pointer) {
  return reinterpret_cast<Pointer>((reinterpret_cast<uintptr_t>(pointer) + 63) & ~uintptr_t{63});
}

// Behind the plan: the steps, group by group, then for each step where its source bytes begin.
Step* steps_of(Plan* plan) { return reinterpret_cast<Step*>(plan + 1); }
const Step* steps_of(const Plan* plan) { return reinterpret_cast<const Step*>(plan + 1); }
int32_t* bases_of(Plan* plan) { return reinterpret_cast<int32_t*>(steps_of(plan) + plan->groups * plan->quads); }
const int32_t* bases_of(const Plan* plan) {
  return reinterpret_cast<const int32_t*>(steps_of(plan) + plan->groups * plan->quads);
}

int groups_of(const Axis& axis, int channels) { return (axis.count() * channels + kLanes - 1) / kLanes; }
int quads_of(const Axis& axis) { return (axis.most_taps() + 3) / 4; }

size_t plan_size(const Axis& axis, int channels) {
  const size_t steps = static_cast<size_t>(groups_of(axis, channels)) * quads_of(axis);
  return sizeof(Plan) + steps * (sizeof(Step) + sizeof(int32_t)) + 64;
}

uint32_t word_of(int8_t a, int8_t b, int8_t c, int8_t d) {
  return static_cast<uint8_t>(a) | static_cast<uint32_t>(static_cast<uint8_t>(b)) << 8 |
         static_cast<uint32_t>(static_cast<uint8_t>(c)) << 16 | static_cast<uint32_t>(static_cast<uint8_t>(d)) << 24;
}

// Splits up to four weights into three words of signed bytes: weight = d[2] * 65536 + d[1] * 256 + d[0].
void split_quad(const int32_t* weight, int taps, uint32_t (&words)[3]) {
  int8_t digit[3][4] = {};
  for (int t = 0; t < taps; ++t) {
    int32_t rest = weight[t];
    for (int k = 0; k < 3; ++k) {
      digit[k][t] = static_cast<int8_t>(rest & 255);
      rest = (rest - digit[k][t]) >> 8;
    }
  }
  for (int k = 0; k < 3; ++k) words[k] = word_of(digit[k][0], digit[k][1], digit[k][2], digit[k][3]);
}

void split_pair(const int32_t* weight, int taps, uint32_t (&words)[3]) {
  const int32_t first = weight[0], second = taps > 1 ? weight[1] : 0;
  words[0] = static_cast<uint32_t>(first & 255) | static_cast<uint32_t>(second & 255) << 16;
  words[1] = static_cast<uint32_t>((first >> 8) & 0xffff) | static_cast<uint32_t>((second >> 8) & 0xffff) << 16;
  words[2] = 0;
}

// Fills one step; false: its source bytes lie too far apart.
bool make_step(const Axis& axis, int channels, int group, int quad, Plan& plan, Step& step, int32_t& base) {
  const int outputs = axis.count() * channels;
  const int lane_end = std::min(outputs - group * kLanes, kLanes);
  int low = INT32_MAX, high = 0;
  int starts[kLanes];
  for (int lane = 0; lane < lane_end; ++lane) {
    const int output = group * kLanes + lane, pixel = output / channels;
    const int taps = std::clamp(axis.taps()[pixel] - 4 * quad, 0, 4);
    starts[lane] = (axis.starts()[pixel] - axis.source_low() + 4 * quad) * channels + output % channels;
    if (taps == 0) continue;
    low = std::min(low, starts[lane]);
    high = std::max(high, starts[lane] + (taps - 1) * channels);
  }
  base = low == INT32_MAX ? 0 : low;
  if (high - base >= kReach) return false;
  plan.wide = plan.wide || high - base >= 64;
  for (int lane = 0; lane < lane_end; ++lane) {
    const int pixel = (group * kLanes + lane) / channels;
    const int taps = std::clamp(axis.taps()[pixel] - 4 * quad, 0, 4);
    if (taps == 0) continue;
    const int32_t* weight = axis.weights() + static_cast<size_t>(pixel) * axis.width() + 4 * quad;
    uint32_t words[3];
    plan.pairs ? split_pair(weight, taps, words) : split_quad(weight, taps, words);
    for (int k = 0; k < 3; ++k) std::memcpy(&step.digit[k][4 * lane], &words[k], 4);
    const int at = starts[lane] - base;
    for (int t = 0; t < taps; ++t) step.index[4 * lane + (plan.pairs ? 2 * t : t)] = static_cast<uint8_t>(at + t * channels);
  }
  return true;
}

bool make_plan(const Axis& axis, int channels, void* memory) {
  Plan* plan = static_cast<Plan*>(aligned(memory));
  plan->groups = groups_of(axis, channels);
  plan->quads = quads_of(axis);
  plan->pairs = axis.most_taps() <= 2;
  plan->wide = false;
  const int count = plan->groups * plan->quads;
  std::memset(steps_of(plan), 0, sizeof(Step) * count);
  for (int i = 0; i < count; ++i) {
    if (!make_step(axis, channels, i / plan->quads, i % plan->quads, *plan, steps_of(plan)[i], bases_of(plan)[i])) {
      return false;
    }
  }
  return true;
}

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

template <bool kWide>
FASTDATA_AVX512 void horizontal_pairs(const uint8_t* source, uint8_t* target, const Plan* plan) {
  const Step* step = steps_of(plan);
  const int32_t* base = bases_of(plan);
  for (int group = 0; group < plan->groups; ++group, ++step) {
    const __m512i index = _mm512_load_si512(step->index);
    const __m512i pixels = _mm512_maskz_mov_epi8(kEvenBytes, gather(source + base[group], index, kWide));
    const __m512i low = _mm512_dpwssd_epi32(_mm512_set1_epi32(kHalf), pixels, _mm512_load_si512(step->digit[0]));
    const __m512i high = _mm512_dpwssd_epi32(_mm512_setzero_si512(), pixels, _mm512_load_si512(step->digit[1]));
    store16(target + kLanes * group, _mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
  }
}

template <bool kWide>
FASTDATA_AVX512 void horizontal_quads(const uint8_t* source, uint8_t* target, const Plan* plan) {
  const Step* step = steps_of(plan);
  const int32_t* base = bases_of(plan);
  for (int group = 0; group < plan->groups; ++group) {
    __m512i d0 = _mm512_set1_epi32(kHalf), d1 = _mm512_setzero_si512(), d2 = _mm512_setzero_si512();
    for (int quad = 0; quad < plan->quads; ++quad, ++step, ++base) {
      const __m512i pixels = gather(source + *base, _mm512_load_si512(step->index), kWide);
      d0 = _mm512_dpbusd_epi32(d0, pixels, _mm512_load_si512(step->digit[0]));
      d1 = _mm512_dpbusd_epi32(d1, pixels, _mm512_load_si512(step->digit[1]));
      d2 = _mm512_dpbusd_epi32(d2, pixels, _mm512_load_si512(step->digit[2]));
    }
    store16(target + kLanes * group, together(d0, d1, d2));
  }
}

void horizontal(const uint8_t* source, uint8_t* target, const Axis&, int, const void* memory) {
  const Plan* plan = static_cast<const Plan*>(aligned(memory));
  if (plan->pairs) {
    plan->wide ? horizontal_pairs<true>(source, target, plan) : horizontal_pairs<false>(source, target, plan);
  } else {
    plan->wide ? horizontal_quads<true>(source, target, plan) : horizontal_quads<false>(source, target, plan);
  }
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

FASTDATA_AVX512 void vertical_quads(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target,
                                    size_t n) {
  const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(kHalf);
  for (size_t at = 0; at < n; at += 64) {
    __m512i d0[4] = {half, half, half, half}, d1[4] = {zero, zero, zero, zero}, d2[4] = {zero, zero, zero, zero};
    for (int first = 0; first < taps; first += 4) {
      const int count = std::min(taps - first, 4);
      uint32_t digits[3];
      split_quad(weight + first, count, digits);
      const __m512i a = load(rows[first] + at), b = count > 1 ? load(rows[first + 1] + at) : zero;
      const __m512i c = count > 2 ? load(rows[first + 2] + at) : zero;
      const __m512i d = count > 3 ? load(rows[first + 3] + at) : zero;
      const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
      const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
      const __m512i bytes[4] = {_mm512_unpacklo_epi16(ab_low, cd_low), _mm512_unpackhi_epi16(ab_low, cd_low),
                                _mm512_unpacklo_epi16(ab_high, cd_high), _mm512_unpackhi_epi16(ab_high, cd_high)};
      const __m512i w0 = _mm512_set1_epi32(static_cast<int>(digits[0]));
      const __m512i w1 = _mm512_set1_epi32(static_cast<int>(digits[1]));
      const __m512i w2 = _mm512_set1_epi32(static_cast<int>(digits[2]));
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
  taps == 2 ? vertical_pair(rows, weight, target, n) : vertical_quads(rows, weight, taps, target, n);
}

}  // namespace

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vnni");
}

const Kernels& avx512_kernels() {
  static const Kernels kernels{"avx512", horizontal, vertical, plan_size, make_plan};
  return kernels;
}

}  // namespace fastdata

#endif  // FASTDATA_X86
