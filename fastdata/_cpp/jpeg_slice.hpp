// A JPEG of only a part of the blocks, cut out of one that has restart markers: what is outside costs a search for markers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastdata {

// A rectangle of pixels: left <= x < right, top <= y < bottom.
struct Region {
  int left, top, right, bottom;
};

// Makes, in `out`, a JPEG of the rectangle `held`, which has `wanted` in it and one pixel more on each side (as far as
// chroma upsampling looks), so that `wanted` decodes to the same bits. With a marker at the end of each row of blocks (or
// of several), the rows above and below are left out; with several markers in a row, the columns beside it, too. false:
// nothing can be saved here (no restart markers that fit, several scans, all is wanted), or the data are not as expected;
// then the whole JPEG is the way. May throw std::bad_alloc. width, height: the picture's; another size gives false.
bool slice_jpeg(const uint8_t* data, size_t length, int width, int height, const Region& wanted,
                std::vector<uint8_t>& out, Region& held);

}  // namespace fastdata
