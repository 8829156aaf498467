// What one batch asks for: plain values, shared by every part of the core.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Numbers of fastdata.types.CODECS; the core takes these two.
constexpr int kCodecJpeg = 1;
constexpr int kCodecRaw = 5;

// The numbers are known to fastdata/decoding/native_decoder.py.
enum Status : int {
  kOk = 0,
  kUnsupported = 1,  // not the core's: the reference road takes it
  kCorrupt = 2,
  kTruncated = 3,
  kTooLarge = 4,
  kMismatch = 5,  // the header's size is not the one that the caller gave
  kNoMemory = 6,
};

constexpr size_t kMessageSize = 200;

// The encoded bytes of one image; borrowed.
struct Source {
  const uint8_t* data;
  size_t length;
  int codec;
  int width, height;
};

// One row of fastdata.types.Geometry.
struct View {
  int box[4];        // left, top, right, bottom; source pixels
  double window[4];  // left, top, right, bottom; source pixels
  int size[2];       // width, height of the virtual picture
  int rect[4];       // left, top, width, height in the virtual picture
  bool hflip, vflip;
};

enum class Filter : int { kNearest = 0, kBox, kBilinear, kHamming, kBicubic, kLanczos };

// Where pictures go: (n, height, width, channels), strides in elements; borrowed from the caller.
struct Output {
  void* data;
  int64_t stride[4];
  int height, width, channels;
  const void* levels;  // channels x 256 numbers of level_size bytes, out's elements; null: out is uint8
  int level_size;      // 4 (float32) or 2 (bfloat16, float16: their bits are copied, so the core need not know which)
};

struct Options {
  Filter filter;
  bool antialias;
  uint8_t fill[3];
  int64_t max_pixels;  // 0: no limit
  bool plain;          // plain chroma upsampling
  int margin;          // JPEGs are decoded smaller where this many times the asked for size is left; 0: never
  int scale;           // JPEGs are decoded this many times smaller: 1, 2, 4 or 8; set for each image
};

}  // namespace fastdata
