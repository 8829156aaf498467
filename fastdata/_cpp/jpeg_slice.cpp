#include "jpeg_slice.hpp"

#include <algorithm>
#include <cstring>

namespace fastdata {
namespace {

constexpr uint8_t kSof0 = 0xC0, kSof1 = 0xC1, kSoi = 0xD8, kEoi = 0xD9, kSos = 0xDA, kDri = 0xDD, kRst0 = 0xD0;

int ceil_div(int a, int b) { return (a + b - 1) / b; }

int number_at(const uint8_t* at) { return at[0] << 8 | at[1]; }

// What the headers of a sequential Huffman JPEG of one scan say.
struct Headers {
  size_t height_at;   // offset of the two bytes of the height
  size_t scan_at;     // offset of the first entropy-coded byte
  int width, height;
  int restart;        // blocks (MCUs) between two markers
  int columns;        // blocks in a row of blocks
  int block_width;    // pixels
  int block_height;   // lines
};

// Reads a frame header (ITU T.81 B.2.2) at `body`, the byte behind its length.
bool read_frame(const uint8_t* body, size_t size, Headers& headers, int& components) {
  if (size < 6 || body[0] != 8) return false;
  headers.height = number_at(body + 1);
  headers.width = number_at(body + 3);
  components = body[5];
  if (components < 1 || size < 6 + 3 * static_cast<size_t>(components)) return false;
  int across = 1, down = 1;
  for (int c = 0; c < components && components > 1; ++c) {  // one component alone: a block is 8 x 8 (A.2.2)
    across = std::max(across, body[6 + 3 * c + 1] >> 4);
    down = std::max(down, body[6 + 3 * c + 1] & 15);
  }
  headers.columns = ceil_div(headers.width, 8 * across);
  headers.block_width = 8 * across;
  headers.block_height = 8 * down;
  return headers.width > 0 && headers.height > 0;
}

// Walks over the marker segments up to the scan. false: not a file that can be sliced.
bool read_headers(const uint8_t* data, size_t length, Headers& headers) {
  if (length < 4 || data[0] != 0xFF || data[1] != kSoi) return false;
  int components = 0;
  headers.restart = 0;
  for (size_t at = 2; at + 4 <= length;) {
    if (data[at] != 0xFF) return false;
    const uint8_t marker = data[at + 1];
    if (marker == 0xFF) {
      ++at;
      continue;
    }
    const size_t size = number_at(data + at + 2);
    if (size < 2 || at + 2 + size > length) return false;
    const uint8_t* body = data + at + 4;
    if (marker == kSof0 || marker == kSof1) {
      if (components || !read_frame(body, size - 2, headers, components)) return false;
      headers.height_at = at + 5;
    } else if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
      return false;  // progressive, lossless, arithmetic
    } else if (marker == kDri) {
      if (size != 4) return false;
      headers.restart = number_at(body);
    } else if (marker == kSos) {
      headers.scan_at = at + 2 + size;
      return components && size > 2 && body[0] == components && headers.restart > 0;
    }
    at += 2 + size;
  }
  return false;
}

// Goes from one restart marker to the next. next() gives the offset of the byte behind it, 0 at the end of the scan.
class Markers {
 public:
  Markers(const uint8_t* data, size_t length, size_t at) : data_(data), length_(length), at_(at) {}

  size_t next() {
    while (at_ + 1 < length_) {
      const void* found = std::memchr(data_ + at_, 0xFF, length_ - 1 - at_);
      if (!found) break;
      at_ = static_cast<size_t>(static_cast<const uint8_t*>(found) - data_);
      const uint8_t marker = data_[at_ + 1];
      if (marker == 0) {
        at_ += 2;
      } else if (marker == 0xFF) {
        ++at_;
      } else if (marker == kRst0 + (count_ & 7)) {
        ++count_;
        return at_ += 2;
      } else {
        end_ = marker == kEoi ? at_ : 0;
        return 0;
      }
    }
    end_ = 0;
    return 0;
  }

  // Where the end marker is; 0 when next() stopped for another reason.
  size_t end() const { return end_; }

 private:
  const uint8_t* data_;
  size_t length_, at_;
  size_t end_ = 0;
  int count_ = 0;
};

// Below this width libjpeg may choose another chroma upsampling (see jpeg_region.cpp), so no slice is narrower.
constexpr int kLeastWidth = 32;

// Which part of the picture is kept, in units: a unit lies between two markers that can be cut at, and is `lines` high and
// `pixels` wide (the last of a row or column may be less).
struct Grid {
  int pixels, lines;
  int across, down;                    // units of the picture
  int left, top, right, bottom;        // units kept: left <= x < right, top <= y < bottom
};

bool make_grid(const Headers& headers, const Region& wanted, Grid& grid) {
  const bool several = headers.columns % headers.restart == 0;  // one or more intervals in a row of blocks
  if (!several && headers.restart % headers.columns != 0) return false;
  grid.across = several ? headers.columns / headers.restart : 1;
  grid.pixels = (several ? headers.restart : headers.columns) * headers.block_width;
  grid.lines = (several ? 1 : headers.restart / headers.columns) * headers.block_height;
  grid.down = ceil_div(headers.height, grid.lines);
  grid.left = std::max(wanted.left - 1, 0) / grid.pixels;
  grid.top = std::max(wanted.top - 1, 0) / grid.lines;
  grid.right = std::min(ceil_div(wanted.right + 1, grid.pixels), grid.across);
  grid.bottom = std::min(ceil_div(wanted.bottom + 1, grid.lines), grid.down);
  while (grid.left > 0 && headers.width - grid.left * grid.pixels < kLeastWidth) --grid.left;
  while (grid.right < grid.across && (grid.right - grid.left) * grid.pixels < kLeastWidth) ++grid.right;
  // What lies below is not read in any case.
  return grid.left > 0 || grid.top > 0 || grid.right < grid.across;
}

void put_number(std::vector<uint8_t>& out, size_t at, int number) {
  out[at] = static_cast<uint8_t>(number >> 8);
  out[at + 1] = static_cast<uint8_t>(number);
}

// Copies the kept units' data from behind the headers on, with markers that count from 0 again.
bool copy_units(const uint8_t* data, size_t length, const Headers& headers, const Grid& grid, std::vector<uint8_t>& out) {
  Markers markers(data, length, headers.scan_at);
  size_t at = headers.scan_at;
  int copied = 0;
  for (int y = 0; y < grid.bottom; ++y) {
    for (int x = 0; x < grid.across; ++x) {
      const size_t next = markers.next();
      // The picture's last unit ends at the end marker, any other at a restart marker.
      const bool last = y == grid.down - 1 && x == grid.across - 1;
      const size_t stop = last ? (next ? 0 : markers.end()) : (next ? next - 2 : 0);
      if (!stop) return false;
      if (y >= grid.top && x >= grid.left && x < grid.right) {
        if (copied) out.insert(out.end(), {0xFF, static_cast<uint8_t>(kRst0 + ((copied - 1) & 7))});
        out.insert(out.end(), data + at, data + stop);
        ++copied;
      }
      if (y == grid.bottom - 1 && x == grid.right - 1) break;
      at = next;
    }
  }
  out.insert(out.end(), {0xFF, kEoi});
  return true;
}

}  // namespace

bool slice_jpeg(const uint8_t* data, size_t length, int width, int height, const Region& wanted,
                std::vector<uint8_t>& out, Region& held) {
  Headers headers{};
  if (!read_headers(data, length, headers) || headers.width != width || headers.height != height) return false;
  Grid grid{};
  if (!make_grid(headers, wanted, grid)) return false;
  held = {grid.left * grid.pixels, grid.top * grid.lines, std::min(grid.right * grid.pixels, width),
          std::min(grid.bottom * grid.lines, height)};
  out.assign(data, data + headers.scan_at);
  put_number(out, headers.height_at, held.bottom - held.top);
  put_number(out, headers.height_at + 2, held.right - held.left);
  return copy_units(data, length, headers, grid, out);
}

}  // namespace fastdata
