// Rows of pixels into the caller's batch: any strides, grey to RGB, grey levels to floats of any kind, fill.
#pragma once

#include <cstdint>

#include "image_job.hpp"
#include "kernels.hpp"

namespace fastdata {

// Where pixel (row, column) of image i begins, when rows of it can be written as they are (uint8, pixels packed, as
// many channels); null otherwise.
uint8_t* direct_row(const Output& out, int64_t image, int row, int column, int channels) noexcept;
// Writes `count` pixels of `channels` (1 or out.channels) from (row, column) on; kSlack bytes behind them are readable.
void store_row(const Kernels& kernels, const Output& out, int64_t image, int row, int column, const uint8_t* pixels,
               int count, int channels) noexcept;
// Fills the rectangle with one colour.
void fill_rectangle(const Output& out, int64_t image, const int (&rectangle)[4], const uint8_t* colour) noexcept;

}  // namespace fastdata
