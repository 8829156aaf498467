#include "jpeg_source.hpp"

#include <jerror.h>

#include <cstring>

namespace fastdata {
namespace {

// More scans than any encoder writes; a file with more is built to keep a decoder busy (libjpeg-turbo's fuzzers: 500).
constexpr int kMostScans = 500;

JpegDecompressor& owner(j_common_ptr info) { return *static_cast<JpegDecompressor*>(info->client_data); }

Status status_of(int code) {
  switch (code) {
    case JERR_INPUT_EMPTY:
    case JERR_INPUT_EOF:
    case JWRN_JPEG_EOF:
      return kTruncated;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_J_COLORSPACE:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NO_SOI:
    case JERR_SOF_UNSUPPORTED:
      return kUnsupported;
    case JERR_OUT_OF_MEMORY:
      return kNoMemory;
    case JERR_IMAGE_TOO_BIG:
      return kTooLarge;
    default:
      return kCorrupt;
  }
}

[[noreturn]] void on_error(j_common_ptr info) {
  JpegDecompressor& jpeg = owner(info);
  jpeg.status = status_of(info->err->msg_code);
  char text[JMSG_LENGTH_MAX];
  (*info->err->format_message)(info, text);
  std::snprintf(jpeg.message, kMessageSize, "%.*s", static_cast<int>(kMessageSize) - 1, text);
  std::longjmp(jpeg.escape, 1);
}

// Whether pixels are missing or guessed after this warning. The others (extraneous bytes before a marker, odd JFIF or
// Adobe fields, unusual but complete scan parameters) leave every pixel as the encoder meant it.
bool means_damage(int code) {
  return code == JWRN_HIT_MARKER || code == JWRN_JPEG_EOF || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC;
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && means_damage(info->err->msg_code)) on_error(info);
}

void print_nothing(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kMostScans) return;
  JpegDecompressor& jpeg = owner(info);
  jpeg.status = kCorrupt;
  std::snprintf(jpeg.message, kMessageSize, "more than %d scans", kMostScans);
  std::longjmp(jpeg.escape, 1);
}

void start_source(j_decompress_ptr) {}

boolean out_of_data(j_decompress_ptr info) {
  info->err->msg_code = JERR_INPUT_EOF;
  on_error(reinterpret_cast<j_common_ptr>(info));
}

void skip_data(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) {
    out_of_data(info);
  }
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= count;
}

void end_source(j_decompress_ptr) {}

}  // namespace

bool create_decompressor(JpegDecompressor& jpeg) noexcept {
  std::memset(static_cast<void*>(&jpeg), 0, sizeof(jpeg));
  jpeg.info.err = jpeg_std_error(&jpeg.errors);
  jpeg.errors.error_exit = on_error;
  jpeg.errors.emit_message = on_message;
  jpeg.errors.output_message = print_nothing;
  jpeg.info.client_data = &jpeg;
  if (setjmp(jpeg.escape)) return false;
  jpeg_create_decompress(&jpeg.info);
  jpeg.created = true;
  jpeg.progress.progress_monitor = on_progress;
  jpeg.info.progress = &jpeg.progress;
  jpeg.source.init_source = start_source;
  jpeg.source.fill_input_buffer = out_of_data;
  jpeg.source.skip_input_data = skip_data;
  jpeg.source.resync_to_restart = jpeg_resync_to_restart;
  jpeg.source.term_source = end_source;
  return true;
}

void destroy_decompressor(JpegDecompressor& jpeg) noexcept {
  if (!jpeg.created) return;
  jpeg.created = false;
  if (setjmp(jpeg.escape)) return;
  jpeg_destroy_decompress(&jpeg.info);
}

void set_source(JpegDecompressor& jpeg, const uint8_t* data, size_t length) noexcept {
  jpeg_abort_decompress(&jpeg.info);
  jpeg.status = kOk;
  jpeg.message[0] = '\0';
  jpeg.errors.num_warnings = 0;
  jpeg.source.next_input_byte = data;
  jpeg.source.bytes_in_buffer = length;
  jpeg.info.src = &jpeg.source;
}

Status read_header(JpegDecompressor& jpeg) noexcept {
  if (setjmp(jpeg.escape)) return jpeg.status;
  jpeg_read_header(&jpeg.info, TRUE);
  return kOk;
}

}  // namespace fastdata
