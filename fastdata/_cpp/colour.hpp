// Colour of one row, in place, by Pillow's formulas (src/libImaging/Convert.c).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Inverted CMYK, as Adobe writes it into JPEGs and as Pillow reads every CMYK JPEG: 4 bytes a pixel become 3.
inline void cmyk_to_rgb(uint8_t* row, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    // With stored = 255 - ink: nk = 255 - K = stored K; out = nk - MULDIV255(ink, nk).
    const int nk = row[4 * i + 3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - row[4 * i + c]) * nk + 128;
      const int value = nk - (((product >> 8) + product) >> 8);
      row[3 * i + c] = static_cast<uint8_t>(value < 0 ? 0 : value);
    }
  }
}

// L = 0.299 R + 0.587 G + 0.114 B in 16 bits: 3 bytes a pixel become 1.
inline void rgb_to_grey(uint8_t* row, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    row[i] = static_cast<uint8_t>((row[3 * i] * 19595 + row[3 * i + 1] * 38470 + row[3 * i + 2] * 7471 + 0x8000) >> 16);
  }
}

}  // namespace fastdata
