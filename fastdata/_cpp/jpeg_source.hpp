// One libjpeg decompressor, kept from image to image: its memory source and its error manager.
#pragma once

// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
// clang-format on
#include <csetjmp>
#include <cstdint>

#include "image_job.hpp"

namespace fastdata {

// libjpeg's errors end in a longjmp to `escape`, so whoever calls libjpeg does it in a function that has called
// setjmp(escape) and owns no object with a destructor. Nothing is printed. A warning that means damage is an error.
struct JpegDecompressor {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  Status status;
  char message[kMessageSize];
  bool created;
};

// false: no memory.
bool create_decompressor(JpegDecompressor& jpeg) noexcept;
void destroy_decompressor(JpegDecompressor& jpeg) noexcept;
// Points the decompressor at new data and forgets what was before.
void set_source(JpegDecompressor& jpeg, const uint8_t* data, size_t length) noexcept;
// Reads up to the first scan. On kOk info.image_width, .image_height and .num_components are known.
Status read_header(JpegDecompressor& jpeg) noexcept;

}  // namespace fastdata
