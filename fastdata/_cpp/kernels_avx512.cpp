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

// And behind those, for make_plan alone, one part for each output pixel.
struct Part;
Part* parts_of(Plan* plan) { return reinterpret_cast<Part*>(bases_of(plan) + plan->groups * plan->quads); }

int groups_of(const Axis& axis, int channels) { return (axis.count() * channels + kLanes - 1) / kLanes; }
int quads_of(const Axis& axis) { return (axis.most_taps() + 3) / 4; }

size_t plan_size(const Axis& axis, int channels) {
  const size_t steps = static_cast<size_t>(groups_of(axis, channels)) * quads_of(axis);
  return sizeof(Plan) + steps * (sizeof(Step) + sizeof(int32_t)) + 24 * static_cast<size_t>(axis.count()) + 64;
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

// What one output pixel contributes to a step: its first source byte there, how many taps, its weights.
struct Part {
  int32_t start, taps;
  uint32_t words[3], index;
};
static_assert(sizeof(Part) == 24, "plan_size counts on it");

Part part_of(const Axis& axis, int channels, int pixel, int quad, bool pairs) {
  Part part{(axis.starts()[pixel] - axis.source_low() + 4 * quad) * channels, 0, {0, 0, 0}, 0};
  part.taps = std::clamp(axis.taps()[pixel] - 4 * quad, 0, 4);
  if (part.taps == 0) return part;
  const int32_t* weight = axis.weights() + static_cast<size_t>(pixel) * axis.width() + 4 * quad;
  pairs ? split_pair(weight, part.taps, part.words) : split_quad(weight, part.taps, part.words);
  const int spread = pairs ? 16 : 8;
  for (int t = 1; t < part.taps; ++t) part.index |= static_cast<uint32_t>(t * channels) << (t * spread);
  return part;
}

// Fills the lanes of one step; false: its source bytes lie too far apart.
bool make_step(const Part* parts, int channels, int first, int end, Plan& plan, Step& step, int32_t& base) {
  int low = INT32_MAX, high = 0;
  for (int pixel = first / channels; pixel <= (end - 1) / channels; ++pixel) {
    const Part& part = parts[pixel];
    if (part.taps == 0) continue;
    low = std::min(low, part.start);
    high = std::max(high, part.start + part.taps * channels - 1);
  }
  base = low == INT32_MAX ? 0 : low;
  if (high - base >= kReach) return false;
  plan.wide = plan.wide || high - base >= 64;
  int pixel = first / channels, channel = first % channels;
  for (int lane = 0; lane < end - first; ++lane) {
    const Part& part = parts[pixel];
    // Lanes without taps have weights 0; what they read must only lie within reach.
    const uint32_t at = part.taps ? static_cast<uint32_t>(part.start - base + channel) : 0;
    const uint32_t index = part.index + at * 0x01010101u;
    std::memcpy(&step.index[4 * lane], &index, 4);
    for (int k = 0; k < 3; ++k) std::memcpy(&step.digit[k][4 * lane], &part.words[k], 4);
    if (++channel == channels) ++pixel, channel = 0;
  }
  return true;
}

bool make_plan(const Axis& axis, int channels, void* memory) {
  Plan* plan = static_cast<Plan*>(aligned(memory));
  plan->groups = groups_of(axis, channels);
  plan->quads = quads_of(axis);
  plan->pairs = axis.most_taps() <= 2;
  plan->wide = false;
  const int outputs = axis.count() * channels;
  Step* steps = steps_of(plan);
  int32_t* bases = bases_of(plan);
  Part* parts = parts_of(plan);
  for (int quad = 0; quad < plan->quads; ++quad) {
    for (int pixel = 0; pixel < axis.count(); ++pixel) parts[pixel] = part_of(axis, channels, pixel, quad, plan->pairs);
    for (int group = 0; group < plan->groups; ++group) {
      const int first = group * kLanes, end = std::min(first + kLanes, outputs), at = group * plan->quads + quad;
      if (end - first < kLanes) std::memset(&steps[at], 0, sizeof(Step));
      if (!make_step(parts, channels, first, end, *plan, steps[at], bases[at])) return false;
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
  static const Kernels kernels{"avx512", horizontal, vertical, split, plan_size, make_plan};
  return kernels;
}

}  // namespace fastdata

#endif  // FASTDATA_X86
