// One image of a batch, from encoded bytes to its place in the output.
#pragma once

#include <vector>

#include "image_job.hpp"
#include "jpeg_region.hpp"
#include "resample.hpp"

namespace fastdata {

// What one thread keeps from image to image, so that nothing is allocated once the largest has been seen.
struct Scratch {
  explicit Scratch(const Kernels& kernels) : resampler(kernels) {}
  JpegReader jpeg;
  Resampler resampler;
  std::vector<uint8_t> row;
  std::vector<uint8_t> slice;
};

// Decodes, crops, resamples, mirrors and stores one image. message (kMessageSize bytes) says what is wrong when the
// status is not kOk. Never throws.
Status decode_image(Scratch& scratch, const Source& source, const View& view, const Options& options,
                    const Output& out, int64_t image, char* message) noexcept;

// Decodes the whole JPEG, to its end, into uint8 (height, width, channels), C-contiguous.
Status decode_whole(Scratch& scratch, const uint8_t* data, size_t length, size_t height, size_t width,
                    size_t channels, uint8_t* pixels, char* message) noexcept;

}  // namespace fastdata
