#include "jpeg_region.hpp"

#include <algorithm>
#include <cstring>

#include "colour.hpp"
#include "kernels.hpp"

namespace fastdata {
namespace {

// Below this width libjpeg chooses another chroma upsampling (jdsample.c: more than 2 chroma columns for the fancy one),
// so no crop is narrower.
constexpr int kLeastWidth = 32;

// libjpeg-turbo writes rows that begin at a multiple of a vector's bytes past the cache (movntdq: 16 with SSE2, 32 with
// AVX2), and the resampler, which reads them at once, waits for memory: 370 us instead of 292 for a crop of 224 from a
// photograph of 256. Rows beside such a multiple stay in the cache; where an allocation begins is a matter of chance.
constexpr size_t kLine = 64, kBeside = 8;

struct ReadPlan {
  Region region;
  int channels;  // as the sink gets them
  bool to_end;
  uint8_t* rows;  // kRowsAtOnce rows of row_bytes
  size_t row_bytes;
  const RowSink* sink;
};

// Block smoothing (progressive files with missing scans) looks at neighbours, so such files are decoded whole.
bool needs_whole(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode || !info.coef_bits) return false;
  for (int c = 0; c < info.num_components; ++c) {
    for (int k = 1; k < DCTSIZE2; ++k) {
      if (info.coef_bits[c][k] != 0) return true;
    }
  }
  return false;
}

// Cuts the columns down to the region and one pixel more on each side, which is as far as chroma upsampling looks.
// Returns the x of the first column that comes.
JDIMENSION crop_columns(jpeg_decompress_struct& info, const Region& region) {
  const int full = static_cast<int>(info.output_width);
  int left = std::max(region.left - 1, 0), right = std::min(region.right + 1, full);
  if (right - left < kLeastWidth) {
    right = std::min(left + kLeastWidth, full);
    left = std::max(right - kLeastWidth, 0);
  }
  const int column = static_cast<int>(info.max_h_samp_factor * DCTSIZE / info.scale_denom);
  if (left < column && full - right < column) return 0;
  JDIMENSION offset = left, width = right - left;
  jpeg_crop_scanline(&info, &offset, &width);
  return offset;
}

void convert_row(const jpeg_decompress_struct& info, uint8_t* row, size_t pixels, int channels) {
  if (info.out_color_space == JCS_CMYK) cmyk_to_rgb(row, pixels);
  if (channels == 1 && info.out_color_space != JCS_GRAYSCALE) rgb_to_grey(row, pixels);
}

// Reads up to `most` rows, at least one. libjpeg gives none only when it is asked for more than there are, which the
// caller has ruled out; it must not become an endless loop all the same.
int some_rows(jpeg_decompress_struct& info, JSAMPARRAY rows, int most) {
  const JDIMENSION count = jpeg_read_scanlines(&info, rows, static_cast<JDIMENSION>(most));
  if (count == 0) (*info.err->error_exit)(reinterpret_cast<j_common_ptr>(&info));
  return static_cast<int>(count);
}

// Reads rows up to (not including) `end` for nothing.
void discard_rows(jpeg_decompress_struct& info, JSAMPARRAY rows, int end) {
  while (static_cast<int>(info.output_scanline) < end) {
    const int left = std::min(kRowsAtOnce, end - static_cast<int>(info.output_scanline));
    some_rows(info, rows, left);
  }
}

// Calls libjpeg: owns nothing that has a destructor (an error leaves by longjmp).
Status read_rows(JpegDecompressor& jpeg, const ReadPlan& plan) noexcept {
  jpeg_decompress_struct& info = jpeg.info;
  if (setjmp(jpeg.escape)) return jpeg.status;
  jpeg_start_decompress(&info);
  const bool whole = needs_whole(info);
  const int first = whole ? 0 : static_cast<int>(crop_columns(info, plan.region));
  if (!whole && plan.region.top > 0) jpeg_skip_scanlines(&info, plan.region.top);
  JSAMPROW rows[kRowsAtOnce];
  for (int i = 0; i < kRowsAtOnce; ++i) rows[i] = plan.rows + i * plan.row_bytes;
  if (whole) discard_rows(info, rows, plan.region.top);
  const size_t skipped = static_cast<size_t>(plan.region.left - first) * info.output_components;
  const size_t wanted = plan.region.right - plan.region.left;
  for (int y = plan.region.top; y < plan.region.bottom;) {
    const int most = std::min(kRowsAtOnce, plan.region.bottom - y);
    int count = 0;
    while (count < most) count += some_rows(info, rows + count, most - count);
    const uint8_t* pixels[kRowsAtOnce];
    for (int i = 0; i < count; ++i) {
      convert_row(info, rows[i] + skipped, wanted, plan.channels);
      pixels[i] = rows[i] + skipped;
    }
    plan.sink->rows(plan.sink->self, y, pixels, count);
    y += count;
  }
  if (plan.to_end) {
    discard_rows(info, rows, static_cast<int>(info.output_height));
    jpeg_finish_decompress(&info);
  }
  return kOk;
}

}  // namespace

JpegReader::JpegReader() { create_decompressor(jpeg_); }

JpegReader::~JpegReader() { destroy_decompressor(jpeg_); }

Status JpegReader::open(const uint8_t* data, size_t length) noexcept {
  if (!jpeg_.created && !create_decompressor(jpeg_)) return kNoMemory;
  set_source(jpeg_, data, length);
  return read_header(jpeg_);
}

Status JpegReader::read(const Region& region, int channels, const RowSink& sink, const ReadOptions& options) {
  jpeg_decompress_struct& info = jpeg_.info;
  switch (info.num_components) {
    case 1: info.out_color_space = JCS_GRAYSCALE; break;
    case 3: info.out_color_space = JCS_RGB; break;
    case 4: info.out_color_space = JCS_CMYK; break;
    default: std::strcpy(jpeg_.message, "neither 1, 3 nor 4 components"); return kUnsupported;
  }
  const int scale = options.scale;
  if (region.left < 0 || region.top < 0 || region.left >= region.right || region.top >= region.bottom ||
      region.right > (width() + scale - 1) / scale || region.bottom > (height() + scale - 1) / scale) {
    std::strcpy(jpeg_.message, "the region lies outside the picture");
    return kMismatch;
  }
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = options.plain ? FALSE : TRUE;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(scale);
  ReadPlan plan{region, info.num_components == 1 ? 1 : channels, options.to_end, nullptr, 0, &sink};
  plan.row_bytes = (static_cast<size_t>(info.image_width) * info.num_components + kSlack + 63) / 64 * 64;
  const size_t need = plan.row_bytes * kRowsAtOnce + kLine + kBeside;
  if (rows_.size() < need) rows_.resize(need);
  plan.rows = rows_.data() + (kLine - reinterpret_cast<uintptr_t>(rows_.data()) % kLine) + kBeside;
  if (!sink.begin(sink.self, plan.channels)) return kNoMemory;
  const Status status = read_rows(jpeg_, plan);
  jpeg_abort_decompress(&info);  // gives back what a large or progressive image took, even when no other one follows
  return status;
}

}  // namespace fastdata
