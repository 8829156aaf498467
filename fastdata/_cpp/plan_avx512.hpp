// What the AVX-512 kernels know of an axis before they see a pixel: which bytes each lane takes, and its weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "axis.hpp"

namespace fastdata::avx512 {

constexpr int kLanes = 16;   // output bytes (pixel and channel) of a group
constexpr int kReach = 128;  // source bytes that one permutation can choose from

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
inline Step* steps_of(Plan* plan) { return reinterpret_cast<Step*>(plan + 1); }
inline const Step* steps_of(const Plan* plan) { return reinterpret_cast<const Step*>(plan + 1); }
inline int32_t* bases_of(Plan* plan) { return reinterpret_cast<int32_t*>(steps_of(plan) + plan->groups * plan->quads); }
inline const int32_t* bases_of(const Plan* plan) {
  return reinterpret_cast<const int32_t*>(steps_of(plan) + plan->groups * plan->quads);
}

// Splits up to four weights into three words of signed bytes: weight = d[2] * 65536 + d[1] * 256 + d[0].
void split_quad(const int32_t* weight, int taps, uint32_t (&words)[3]);

size_t plan_size(const Axis& axis, int channels);
// Fills the plan; false: some group's source bytes lie too far apart for one permutation.
bool make_plan(const Axis& axis, int channels, void* memory);

}  // namespace fastdata::avx512
