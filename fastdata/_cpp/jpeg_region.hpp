// A rectangle of a JPEG's pixels, equal bit for bit to the same rectangle of the whole decode.
#pragma once

#include <cstdint>
#include <vector>

#include "jpeg_slice.hpp"
#include "jpeg_source.hpp"

namespace fastdata {

// Takes rows as they are decoded. Neither function throws.
struct RowSink {
  // Told once, before the first row, how many channels a pixel has (1 or 3). false: no memory.
  bool (*begin)(void* self, int channels);
  // The pixels left <= x < right of `count` rows from y on (at most kRowsAtOnce), with kSlack readable bytes behind
  // each; valid during the call.
  void (*rows)(void* self, int y, const uint8_t* const* pixels, int count);
  void* self;
};

struct ReadOptions {
  bool to_end;  // also read what comes after the region, so that damage there is found
  bool plain;   // plain chroma upsampling
  int scale;    // 1, 2, 4 or 8: decode this many times smaller; the region is in these smaller pixels
};

class JpegReader {
 public:
  JpegReader();
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads the header; then width(), height() and components() are known.
  Status open(const uint8_t* data, size_t length) noexcept;
  int width() const { return static_cast<int>(jpeg_.info.image_width); }
  int height() const { return static_cast<int>(jpeg_.info.image_height); }
  int components() const { return jpeg_.info.num_components; }

  // Decodes `region` of the image that open() read, grey when `channels` is 1 (a grey JPEG always gives 1 channel).
  // May throw std::bad_alloc.
  Status read(const Region& region, int channels, const RowSink& sink, const ReadOptions& options);
  // What went wrong last; lives as long as the reader, until the next open().
  const char* message() const { return jpeg_.message; }

 private:
  JpegDecompressor jpeg_;
  std::vector<uint8_t> rows_;
};

}  // namespace fastdata
