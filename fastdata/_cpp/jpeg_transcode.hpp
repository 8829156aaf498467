// The same JPEG with restart markers: coefficients are copied, so it decodes to the same pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image_job.hpp"

namespace fastdata {

struct Restarts {
  int rows;    // rows of blocks (MCUs) in an interval; 0: `blocks` counts
  int blocks;  // blocks in an interval
};

// Writes the picture in `data` as a sequential Huffman JPEG of one scan, with tables made for it, into `out`. Every APPn
// and COM segment stays as it is and in its order, except the index of further pictures (MPF): what lies behind the end
// marker is not copied. kUnsupported where the result could decode to other pixels (a progressive JPEG whose scans are
// not all there). max_pixels: 0 is no limit. `message` has kMessageSize bytes.
Status transcode_jpeg(const uint8_t* data, size_t length, const Restarts& restarts, int64_t max_pixels,
                      std::vector<uint8_t>& out, char* message) noexcept;

}  // namespace fastdata
