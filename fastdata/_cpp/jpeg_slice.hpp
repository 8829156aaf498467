// A JPEG of only some rows of blocks, cut out of one that has restart markers: rows outside cost a search for markers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastdata {

// The rows that are wanted: top <= y < bottom.
struct RowRange {
  int top, bottom;
};

// Makes, in `out`, a JPEG whose first line is line `*first` of the picture and which holds the rows wanted and one line
// more on each side (as far as chroma upsampling looks), so that they decode to the same bits. false: nothing can be
// saved here (no restart markers at row ends, several scans, no rows above), or the data are not as expected; then the
// whole JPEG is the way. May throw std::bad_alloc. width, height: the picture's; another size gives false.
bool slice_rows(const uint8_t* data, size_t length, int width, int height, const RowRange& wanted,
                std::vector<uint8_t>& out, int* first);

}  // namespace fastdata
