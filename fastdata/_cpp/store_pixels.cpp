#include "store_pixels.hpp"

#include <cstring>

namespace fastdata {
namespace {

int64_t offset_of(const Output& out, int64_t image, int row, int column) {
  return image * out.stride[0] + row * out.stride[1] + column * out.stride[2];
}

// One channel of a row. step: distance of source pixels.
void store_bytes(uint8_t* target, int64_t stride, const uint8_t* source, int step, int count) {
  if (stride == 1 && step == 1) {
    std::memcpy(target, source, count);
  } else {
    for (int i = 0; i < count; ++i) target[i * stride] = source[i * step];
  }
}

template <typename Level>
void store_levels(const Output& out, int64_t at, int channel, const uint8_t* source, int step, int count) {
  Level* target = static_cast<Level*>(out.data) + at;
  const Level* levels = static_cast<const Level*>(out.levels) + 256 * channel;
  const int64_t stride = out.stride[2];
  if (stride == 1) {
    for (int i = 0; i < count; ++i) target[i] = levels[source[i * step]];
  } else {
    for (int i = 0; i < count; ++i) target[i * stride] = levels[source[i * step]];
  }
}

void store_any_levels(const Output& out, int64_t at, int channel, const uint8_t* source, int step, int count) {
  out.level_size == 2 ? store_levels<uint16_t>(out, at, channel, source, step, count)
                      : store_levels<uint32_t>(out, at, channel, source, step, count);
}

}  // namespace

uint8_t* direct_row(const Output& out, int64_t image, int row, int column, int channels) noexcept {
  if (out.levels || channels != out.channels || out.stride[2] != channels) return nullptr;
  if (channels > 1 && out.stride[3] != 1) return nullptr;
  return static_cast<uint8_t*>(out.data) + offset_of(out, image, row, column);
}

void store_row(const Kernels& kernels, const Output& out, int64_t image, int row, int column, const uint8_t* pixels,
               int count, int channels) noexcept {
  if (uint8_t* target = direct_row(out, image, row, column, channels)) {
    std::memcpy(target, pixels, static_cast<size_t>(count) * channels);
    return;
  }
  const int64_t start = offset_of(out, image, row, column);
  if (!out.levels && out.stride[2] == 1 && channels == 3) {
    uint8_t* first = static_cast<uint8_t*>(out.data) + start;
    kernels.split(pixels, {first, first + out.stride[3], first + 2 * out.stride[3]}, count);
    return;
  }
  for (int c = 0; c < out.channels; ++c) {
    const uint8_t* source = pixels + (channels == 1 ? 0 : c);
    const int64_t at = start + c * out.stride[3];
    if (out.levels) {
      store_any_levels(out, at, c, source, channels, count);
    } else {
      store_bytes(static_cast<uint8_t*>(out.data) + at, out.stride[2], source, channels, count);
    }
  }
}

void fill_rectangle(const Output& out, int64_t image, const int (&rectangle)[4], const uint8_t* colour) noexcept {
  const int left = rectangle[0], top = rectangle[1], right = rectangle[2], bottom = rectangle[3];
  for (int row = top; row < bottom; ++row) {
    for (int c = 0; c < out.channels; ++c) {
      int64_t at = offset_of(out, image, row, left) + c * out.stride[3];
      if (out.levels) {
        store_any_levels(out, at, c, colour + c, 0, right - left);
        continue;
      }
      for (int x = left; x < right; ++x, at += out.stride[2]) static_cast<uint8_t*>(out.data)[at] = colour[c];
    }
  }
}

}  // namespace fastdata
