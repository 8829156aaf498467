// The inner loops of resampling and of channel sums, one set for each instruction set; all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "axis.hpp"

namespace fastdata {

// Bytes that kernels may read beyond the end of a source row, and write beyond the end of a target row.
constexpr size_t kSlack = 128;

// Rows that the horizontal pass gets at once, at most.
constexpr int kRowsAtOnce = 8;

// Horizontal pass over `count` rows. sources: their pixels from axis.source_low() on; targets: axis.count() pixels each.
using HorizontalKernel = void (*)(const uint8_t* const* sources, uint8_t* const* targets, int count, const Axis& axis,
                                  int channels, const void* plan);
// Vertical pass for one output row: n bytes; rows[k] with weight[k], k < taps.
using VerticalKernel = void (*)(const uint8_t* const* rows, const int32_t* weight, int taps, uint8_t* target,
                                size_t n);

// Takes RGB pixels apart into three planes; reads up to kSlack bytes beyond the pixels, writes nothing beyond them.
using SplitKernel = void (*)(const uint8_t* pixels, uint8_t* const (&planes)[3], size_t count);

// Bytes of a block of sums, and the lanes that it is added up in: byte i goes to lane i % kSumLanes, which is a multiple of
// three, so that all bytes of a lane are of one channel.
constexpr size_t kSumLanes = 96, kSumBlock = 2 * kSumLanes;
// Blocks that one call may get: 2 * 255 * 255 * 32,768 still fits into the 32 bits of a lane.
constexpr size_t kSumBlocks = 32'768;
// Adds the values of `blocks` blocks to the lanes of `value`, their squares to those of `square`.
using SumsKernel = void (*)(const uint8_t* data, size_t blocks, uint32_t* value, uint32_t* square);

struct Kernels {
  const char* name;
  HorizontalKernel horizontal;
  VerticalKernel vertical;
  SplitKernel split;
  SumsKernel sums;
  // Bytes of the plan (tables derived from an axis) and what fills it; null: no plan. A plan may also be refused
  // (returns false): then the generic horizontal kernel serves.
  size_t (*plan_size)(const Axis& axis, int channels);
  bool (*make_plan)(const Axis& axis, int channels, void* plan);
};

const Kernels& generic_kernels();
// The best set that this processor has; by name ("generic", "avx2", "avx512"), null when it is not there.
const Kernels& best_kernels();
const Kernels* kernels_by_name(const char* name);

}  // namespace fastdata
