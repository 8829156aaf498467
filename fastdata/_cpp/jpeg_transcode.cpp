#include "jpeg_transcode.hpp"

#include "jpeg_source.hpp"

#include <jerror.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace fastdata {
namespace {

constexpr size_t kFirstRoom = size_t{1} << 16;
constexpr unsigned kLongestSegment = 0xFFFF;
constexpr int kMostInterval = 0xFFFF;  // of the DRI segment's 16 bits
// Decoders smooth blocks of which they know that one of these coefficients is not exact (jdcoefct.c: SAVED_COEFS).
constexpr int kSmoothed = 10;

// Where libjpeg writes: a vector that grows. It belongs to the caller, so that no error leaves it behind.
struct VectorTarget {
  jpeg_destination_mgr manager;  // first, so that a pointer to it is one to this
  std::vector<uint8_t>* bytes;
};

VectorTarget& target_of(j_compress_ptr info) { return *reinterpret_cast<VectorTarget*>(info->dest); }

// Makes room behind the first `used` bytes. No exception may pass libjpeg's frames, no longjmp this function's.
bool grow(VectorTarget& target, size_t used) noexcept {
  try {
    target.bytes->resize(std::max(kFirstRoom, 2 * used));
  } catch (const std::bad_alloc&) {
    return false;
  }
  target.manager.next_output_byte = target.bytes->data() + used;
  target.manager.free_in_buffer = target.bytes->size() - used;
  return true;
}

void out_of_memory(j_compress_ptr info) {
  info->err->msg_code = JERR_OUT_OF_MEMORY;
  info->err->msg_parm.i[0] = 0;
  (*info->err->error_exit)(reinterpret_cast<j_common_ptr>(info));
}

void start_target(j_compress_ptr info) {
  if (!grow(target_of(info), 0)) out_of_memory(info);
}

boolean target_is_full(j_compress_ptr info) {
  VectorTarget& target = target_of(info);
  if (!grow(target, target.bytes->size())) out_of_memory(info);
  return TRUE;
}

void end_target(j_compress_ptr info) {
  VectorTarget& target = target_of(info);
  target.bytes->resize(target.bytes->size() - target.manager.free_in_buffer);  // shrinks: nothing is allocated
}

struct Transcoder {
  JpegDecompressor in;
  jpeg_compress_struct out;
  VectorTarget target;
  bool created;
};

bool create_compressor(Transcoder& work) noexcept {
  work.out.err = &work.in.errors;
  work.out.client_data = &work.in;
  if (setjmp(work.in.escape)) return false;
  jpeg_create_compress(&work.out);
  work.created = true;
  work.target.manager = {};
  work.target.manager.init_destination = start_target;
  work.target.manager.empty_output_buffer = target_is_full;
  work.target.manager.term_destination = end_target;
  work.out.dest = &work.target.manager;
  return true;
}

void destroy_compressor(Transcoder& work) noexcept {
  if (!work.created) return;
  work.created = false;
  if (setjmp(work.in.escape)) return;
  jpeg_destroy_compress(&work.out);
}

// Whether scans of a progressive JPEG are missing that decoders make up for.
bool would_be_smoothed(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode || !info.coef_bits) return false;
  for (int c = 0; c < info.num_components; ++c) {
    for (int k = 0; k < kSmoothed; ++k) {
      if (info.coef_bits[c][k] != 0) return true;
    }
  }
  return false;
}

bool is_index_of_pictures(const jpeg_marker_struct& segment) {
  return segment.marker == JPEG_APP0 + 2 && segment.data_length >= 4 && std::memcmp(segment.data, "MPF", 4) == 0;
}

void set_interval(jpeg_compress_struct& out, const jpeg_decompress_struct& in, const Restarts& restarts) {
  out.restart_in_rows = 0;
  if (restarts.rows == 0) {
    out.restart_interval = static_cast<unsigned>(std::min(restarts.blocks, kMostInterval));
    return;
  }
  const int width = in.num_components == 1 ? 8 : 8 * in.max_h_samp_factor;  // one component: blocks of 8 x 8 (A.2.2)
  const int columns = (static_cast<int>(in.image_width) + width - 1) / width;
  const int rows = std::min(restarts.rows, std::max(kMostInterval / columns, 1));
  out.restart_interval = static_cast<unsigned>(rows * columns);
}

// Calls libjpeg: owns nothing that has a destructor (an error leaves by longjmp).
Status copy_picture(Transcoder& work, const Restarts& restarts, int64_t max_pixels) noexcept {
  jpeg_decompress_struct& in = work.in.info;
  jpeg_compress_struct& out = work.out;
  if (setjmp(work.in.escape)) return work.in.status;
  jpeg_save_markers(&in, JPEG_COM, kLongestSegment);
  for (int n = 0; n < 16; ++n) jpeg_save_markers(&in, JPEG_APP0 + n, kLongestSegment);
  jpeg_read_header(&in, TRUE);
  if (max_pixels && int64_t{in.image_width} * in.image_height > max_pixels) {
    std::snprintf(work.in.message, kMessageSize, "%u x %u pixels, more than max_pixels allows", in.image_width,
                  in.image_height);
    return kTooLarge;
  }
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&in);
  if (would_be_smoothed(in)) {
    std::snprintf(work.in.message, kMessageSize, "a progressive JPEG whose scans are not all there");
    return kUnsupported;
  }
  jpeg_copy_critical_parameters(&in, &out);
  out.optimize_coding = TRUE;
  // They are among the segments that are copied below.
  out.write_JFIF_header = FALSE;
  out.write_Adobe_marker = FALSE;
  set_interval(out, in, restarts);
  jpeg_write_coefficients(&out, coefficients);
  for (jpeg_saved_marker_ptr segment = in.marker_list; segment; segment = segment->next) {
    if (!is_index_of_pictures(*segment)) {
      jpeg_write_marker(&out, segment->marker, segment->data, segment->data_length);
    }
  }
  jpeg_finish_compress(&out);
  jpeg_finish_decompress(&in);
  return kOk;
}

}  // namespace

Status transcode_jpeg(const uint8_t* data, size_t length, const Restarts& restarts, int64_t max_pixels,
                      std::vector<uint8_t>& out, char* message) noexcept {
  Transcoder work;
  std::memset(static_cast<void*>(&work), 0, sizeof(work));
  work.target.bytes = &out;
  Status status = kNoMemory;
  if (create_decompressor(work.in) && create_compressor(work)) {
    set_source(work.in, data, length);
    status = copy_picture(work, restarts, max_pixels);
  }
  if (status == kNoMemory && !work.in.message[0]) std::snprintf(work.in.message, kMessageSize, "no memory");
  std::memcpy(message, work.in.message, kMessageSize);
  destroy_compressor(work);  // before the decompressor, whose coefficients it reads
  destroy_decompressor(work.in);
  return status;
}

}  // namespace fastdata
