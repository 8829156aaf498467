#include "plan_avx512.hpp"

#include <algorithm>
#include <cstring>

namespace fastdata::avx512 {
namespace {

int groups_of(const Axis& axis, int channels) { return (axis.count() * channels + kLanes - 1) / kLanes; }
int quads_of(const Axis& axis) { return (axis.most_taps() + 3) / 4; }

uint32_t word_of(int8_t a, int8_t b, int8_t c, int8_t d) {
  return static_cast<uint8_t>(a) | static_cast<uint32_t>(static_cast<uint8_t>(b)) << 8 |
         static_cast<uint32_t>(static_cast<uint8_t>(c)) << 16 | static_cast<uint32_t>(static_cast<uint8_t>(d)) << 24;
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

// Behind the bases, for make_plan alone, one part for each output pixel.
Part* parts_of(Plan* plan) { return reinterpret_cast<Part*>(bases_of(plan) + plan->groups * plan->quads); }

}  // namespace

size_t plan_size(const Axis& axis, int channels) {
  const size_t steps = static_cast<size_t>(groups_of(axis, channels)) * quads_of(axis);
  return sizeof(Plan) + steps * (sizeof(Step) + sizeof(int32_t)) + sizeof(Part) * static_cast<size_t>(axis.count()) + 64;
}

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

}  // namespace fastdata::avx512
