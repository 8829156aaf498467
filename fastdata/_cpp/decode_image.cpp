#include "decode_image.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>

#include "jpeg_slice.hpp"
#include "store_pixels.hpp"

namespace fastdata {
namespace {

// A window's edge that is this near to an integer is one (as in fastdata/decoding/resample.py).
constexpr double kWhole = 1e-6;

// The part of one output axis that lies inside the virtual picture, in output coordinates, and its specification.
struct Part {
  int begin, end;
  AxisSpec spec;
};

// The largest of 1, 2, 4, 8 by which the picture can be decoded smaller without going under `margin` times the output's
// size. With a margin of 2 it is the one that Pillow's draft takes (JpegImagePlugin.py) for its thumbnail's reducing_gap.
int scale_for(const Source& source, const View& view, const Options& options) {
  const bool shrinks = options.margin > 0 && options.antialias && options.filter != Filter::kNearest;
  if (!shrinks || source.codec != kCodecJpeg) return 1;
  const double width = view.window[2] - view.window[0], least_width = 2.0 * options.margin * view.size[0];
  const double height = view.window[3] - view.window[1], least_height = 2.0 * options.margin * view.size[1];
  int scale = 1;
  while (scale < 8 && width >= scale * least_width && height >= scale * least_height) scale *= 2;
  return scale;
}

// The same view of a picture that is `scale` times smaller (sides rounded up, as libjpeg does).
View scaled_view(const View& view, const Source& source, int scale) {
  if (scale == 1) return view;
  View small = view;
  const int sides[2] = {(source.width + scale - 1) / scale, (source.height + scale - 1) / scale};
  for (int axis = 0; axis < 2; ++axis) {
    small.box[axis] = view.box[axis] / scale;
    small.box[axis + 2] = std::min((view.box[axis + 2] + scale - 1) / scale, sides[axis]);
    small.window[axis] = view.window[axis] / scale;
    small.window[axis + 2] = std::min(view.window[axis + 2] / scale, static_cast<double>(sides[axis]));
  }
  return small;
}

Part part_of(const View& view, int axis, const Options& options) {
  const int from = view.rect[axis], length = view.rect[axis + 2], size = view.size[axis];
  const bool reversed = axis == 0 ? view.hflip : view.vflip;
  const int first = std::clamp(from, 0, size), last = std::clamp(from + length, first, size);
  const int begin = reversed ? from + length - last : first - from;
  // Pixels outside the window do not exist for the filter, nor do those outside the box.
  const double start = std::max(view.window[axis], 0.0), stop = view.window[axis + 2];
  const int low = std::max(view.box[axis], static_cast<int>(std::floor(start + kWhole)));
  const int high = std::min(view.box[axis + 2], static_cast<int>(std::ceil(stop - kWhole)));
  return {begin, begin + (last - first),
          {start, stop, low, high, size, first, last - first, reversed, options.filter, options.antialias}};
}

Status fail(char* message, Status status, const char* text) {
  std::snprintf(message, kMessageSize, "%s", text);
  return status;
}

Status check(const Source& source, const View& view, const Options& options, char* message) {
  const bool inside = view.box[0] >= 0 && view.box[1] >= 0 && view.box[2] <= source.width &&
                      view.box[3] <= source.height && view.box[0] < view.box[2] && view.box[1] < view.box[3];
  if (!inside) return fail(message, kMismatch, "the box lies outside the picture");
  const bool window_inside = view.window[0] >= -kWhole && view.window[1] >= -kWhole &&
                             view.window[2] <= source.width + kWhole && view.window[3] <= source.height + kWhole;
  if (!window_inside) return fail(message, kUnsupported, "the window leaves the picture");
  if (!options.antialias && options.filter != Filter::kNearest && options.filter != Filter::kBilinear) {
    return fail(message, kUnsupported, "this filter is not offered without antialias");
  }
  return kOk;
}

// Which pass comes first is part of the result (each rounds and clips). Pillow 13 (Resample.c; found by experiment, as
// in tests/decoding/test_native_batch.py): vertical first where the height shrinks by more than twice what the width does.
// It sees the box where that was cut out before, the whole picture otherwise.
bool vertical_first(const Source& source, const View& view) {
  const bool cut = view.window[0] > view.box[0] - 1 && view.window[2] < view.box[2] + 1 &&
                   view.window[1] > view.box[1] - 1 && view.window[3] < view.box[3] + 1;
  const int64_t width = cut ? view.box[2] - view.box[0] : source.width;
  const int64_t height = cut ? view.box[3] - view.box[1] : source.height;
  return height > view.size[1] && (width - view.size[0]) * 2 < height - view.size[1];
}

struct ResampleSink {
  Resampler* resampler;
  bool vertical_first;
  int channels;
};

bool begin_resampling(void* self, int channels) {
  auto& sink = *static_cast<ResampleSink*>(self);
  sink.channels = channels;
  try {
    sink.resampler->begin(channels, sink.vertical_first);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void push_rows(void* self, int y, const uint8_t* const* pixels, int count) {
  static_cast<ResampleSink*>(self)->resampler->push(y, pixels, count);
}

// A sink that is told row numbers of the picture by a reader that counts from a slice's first line.
struct ShiftedSink {
  const RowSink* sink;
  int top;
};

bool begin_shifted(void* self, int channels) {
  const RowSink& sink = *static_cast<ShiftedSink*>(self)->sink;
  return sink.begin(sink.self, channels);
}

void shift_rows(void* self, int y, const uint8_t* const* pixels, int count) {
  const auto& shifted = *static_cast<ShiftedSink*>(self);
  shifted.sink->rows(shifted.sink->self, y + shifted.top, pixels, count);
}

// Only the blocks that the region touches, where restart markers allow it. false: not possible here, or damaged; then the
// ordinary way is tried and says what is wrong.
bool read_sliced(Scratch& scratch, const Source& source, const Options& options, const Region& region,
                 const RowSink& sink, int channels) {
  Region held{};
  if (options.scale != 1) return false;
  if (!slice_jpeg(source.data, source.length, source.width, source.height, region, scratch.slice, held)) return false;
  if (scratch.jpeg.open(scratch.slice.data(), scratch.slice.size()) != kOk) return false;
  ShiftedSink shifted{&sink, held.top};
  const Region moved{region.left - held.left, region.top - held.top, region.right - held.left, region.bottom - held.top};
  const RowSink through{begin_shifted, shift_rows, &shifted};
  return scratch.jpeg.read(moved, channels, through, {false, options.plain, 1}) == kOk;
}

Status read_jpeg(Scratch& scratch, const Source& source, const Options& options, const Region& region,
                 const RowSink& sink, int channels, char* message) {
  if (options.max_pixels && int64_t{source.width} * source.height > options.max_pixels) {
    std::snprintf(message, kMessageSize, "%d x %d pixels, more than max_pixels allows", source.width, source.height);
    return kTooLarge;
  }
  if (read_sliced(scratch, source, options, region, sink, channels)) return kOk;
  JpegReader& jpeg = scratch.jpeg;
  Status status = jpeg.open(source.data, source.length);
  if (status == kOk && (jpeg.width() != source.width || jpeg.height() != source.height)) {
    std::snprintf(message, kMessageSize, "the JPEG is %d x %d, the index says %d x %d", jpeg.width(), jpeg.height(),
                  source.width, source.height);
    return kMismatch;
  }
  if (status == kOk) status = jpeg.read(region, channels, sink, {false, options.plain, options.scale});
  return status == kOk ? kOk : fail(message, status, jpeg.message());
}

Status read_raw(Scratch& scratch, const Source& source, const Region& region, const RowSink& sink, int wanted,
                char* message) {
  const size_t pixels = static_cast<size_t>(source.width) * source.height;
  const int channels = source.length == pixels ? 1 : source.length == 3 * pixels ? 3 : 0;
  if (channels == 0) return fail(message, kMismatch, "a raw record of another length than its width and height say");
  if (channels != 1 && wanted == 1) return fail(message, kUnsupported, "grey wanted, a raw record in colour");
  if (!sink.begin(sink.self, channels)) return kNoMemory;
  // Copied, because kernels read beyond a row's end and what lies there may not be ours.
  const size_t bytes = static_cast<size_t>(region.right - region.left) * channels, stride = bytes + kSlack;
  if (scratch.row.size() < stride * kRowsAtOnce) scratch.row.resize(stride * kRowsAtOnce);
  const uint8_t* rows[kRowsAtOnce];
  for (int i = 0; i < kRowsAtOnce; ++i) rows[i] = scratch.row.data() + i * stride;
  for (int y = region.top; y < region.bottom; y += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, region.bottom - y);
    for (int i = 0; i < count; ++i) {
      const size_t at = (static_cast<size_t>(y + i) * source.width + region.left) * channels;
      std::memcpy(scratch.row.data() + i * stride, source.data + at, bytes);
    }
    sink.rows(sink.self, y, rows, count);
  }
  return kOk;
}

void fill_border(const Output& out, int64_t image, const Part& x, const Part& y, const uint8_t* colour) {
  if (y.begin > 0) fill_rectangle(out, image, {0, 0, out.width, y.begin}, colour);
  if (y.end < out.height) fill_rectangle(out, image, {0, y.end, out.width, out.height}, colour);
  if (x.begin > 0) fill_rectangle(out, image, {0, y.begin, x.begin, y.end}, colour);
  if (x.end < out.width) fill_rectangle(out, image, {x.end, y.begin, out.width, y.end}, colour);
}

void write_rows(Scratch& scratch, const Output& out, int64_t image, const Part& x, const Part& y, int channels) {
  const int count = x.end - x.begin;
  const size_t bytes = static_cast<size_t>(count) * channels;
  if (scratch.row.size() < bytes + kSlack) scratch.row.resize(bytes + kSlack);
  for (int i = 0; i < y.end - y.begin; ++i) {
    const int row = y.begin + i;
    uint8_t* direct = direct_row(out, image, row, x.begin, channels);
    const uint8_t* made = scratch.resampler.output(i, direct ? direct : scratch.row.data());
    if (made != direct) store_row(scratch.resampler.kernels(), out, image, row, x.begin, made, count, channels);
  }
}

Status decode(Scratch& scratch, const Source& source, const View& whole, Options options, const Output& out,
              int64_t image, char* message) {
  if (source.codec != kCodecJpeg && source.codec != kCodecRaw) return fail(message, kUnsupported, "neither JPEG nor raw");
  if (const Status status = check(source, whole, options, message)) return status;
  options.scale = scale_for(source, whole, options);
  const View view = scaled_view(whole, source, options.scale);
  const Part x = part_of(view, 0, options), y = part_of(view, 1, options);
  if (x.begin >= x.end || y.begin >= y.end) {
    fill_rectangle(out, image, {0, 0, out.width, out.height}, options.fill);
    return kOk;
  }
  Resampler& resampler = scratch.resampler;
  if (!resampler.x.prepare(x.spec) || !resampler.y.prepare(y.spec)) {
    return fail(message, kUnsupported, "the window does not lie over the box");
  }
  const Region region{resampler.x.source_low(), resampler.y.source_low(), resampler.x.source_high(),
                      resampler.y.source_high()};
  ResampleSink state{&resampler, vertical_first(source, view), 0};
  const RowSink sink{begin_resampling, push_rows, &state};
  const Status status = source.codec == kCodecJpeg
                            ? read_jpeg(scratch, source, options, region, sink, out.channels, message)
                            : read_raw(scratch, source, region, sink, out.channels, message);
  if (status != kOk) return status;
  fill_border(out, image, x, y, options.fill);
  write_rows(scratch, out, image, x, y, state.channels);
  return kOk;
}

struct CopySink {
  uint8_t* pixels;
  int width, wanted, channels;
};

bool begin_copy(void* self, int channels) {
  static_cast<CopySink*>(self)->channels = channels;
  return true;
}

void copy_row(const CopySink& sink, int y, const uint8_t* row) {
  uint8_t* target = sink.pixels + static_cast<size_t>(y) * sink.width * sink.wanted;
  if (sink.channels == sink.wanted) {
    std::memcpy(target, row, static_cast<size_t>(sink.width) * sink.wanted);
  } else {
    for (int i = 0; i < sink.width; ++i) target[3 * i] = target[3 * i + 1] = target[3 * i + 2] = row[i];
  }
}

void copy_rows(void* self, int y, const uint8_t* const* rows, int count) {
  for (int i = 0; i < count; ++i) copy_row(*static_cast<const CopySink*>(self), y + i, rows[i]);
}

}  // namespace

Status decode_image(Scratch& scratch, const Source& source, const View& view, const Options& options,
                    const Output& out, int64_t image, char* message) noexcept {
  message[0] = '\0';
  try {
    return decode(scratch, source, view, options, out, image, message);
  } catch (const std::bad_alloc&) {
    return fail(message, kNoMemory, "no memory");
  }
}

Status decode_whole(Scratch& scratch, const uint8_t* data, size_t length, size_t height, size_t width,
                    size_t channels, uint8_t* pixels, char* message) noexcept {
  message[0] = '\0';
  try {
    JpegReader& jpeg = scratch.jpeg;
    Status status = jpeg.open(data, length);
    if (status == kOk && (static_cast<size_t>(jpeg.width()) != width || static_cast<size_t>(jpeg.height()) != height)) {
      return fail(message, kMismatch, "the array has another size than the image");
    }
    const int wanted = channels == 1 ? 1 : 3;
    CopySink state{pixels, jpeg.width(), wanted, 0};
    const RowSink sink{begin_copy, copy_rows, &state};
    if (status == kOk) status = jpeg.read({0, 0, jpeg.width(), jpeg.height()}, wanted, sink, {true, false, 1});
    return status == kOk ? kOk : fail(message, status, jpeg.message());
  } catch (const std::bad_alloc&) {
    return fail(message, kNoMemory, "no memory");
  }
}

}  // namespace fastdata
