// The one file of the core that knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>

#include "channel_sums.hpp"
#include "jpeg_transcode.hpp"
#include "pool.hpp"

#define FASTDATA_TEXT(x) #x
#define FASTDATA_STRING(x) FASTDATA_TEXT(x)

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using fastdata::Batch;
using fastdata::Output;

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T, int kWidth>
using Table = nb::ndarray<const T, nb::shape<-1, kWidth>, nb::c_contig, nb::device::cpu>;
using Levels = nb::ndarray<nb::ro, nb::shape<-1, 256>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Failures = std::vector<std::tuple<int64_t, int, std::string>>;

void require(bool fine, const char* text) {
  if (!fine) throw nb::value_error(text);
}

const fastdata::Kernels& kernels_named(const std::string& name) {
  if (name.empty()) return fastdata::best_kernels();
  const fastdata::Kernels* kernels = fastdata::kernels_by_name(name.c_str());
  require(kernels != nullptr, "no such kernels on this processor; known: generic, avx2, avx512");
  return *kernels;
}

// Borrows both: levels must not be a copy that a cast makes here, which would die here.
Output output_of(const nb::ndarray<nb::ndim<4>, nb::device::cpu>& out, const nb::object& levels_object) {
  Output result{};
  result.data = out.data();
  for (int axis = 0; axis < 4; ++axis) result.stride[axis] = out.stride(axis);
  result.height = static_cast<int>(out.shape(1));
  result.width = static_cast<int>(out.shape(2));
  result.channels = static_cast<int>(out.shape(3));
  require(result.channels == 1 || result.channels == 3, "out must have 1 or 3 channels");
  if (levels_object.is_none()) {
    require(out.dtype() == nb::dtype<uint8_t>(), "out must be uint8 where no levels are given");
  } else {
    Levels levels;
    require(nb::try_cast<Levels>(levels_object, levels, /*convert=*/false),
            "levels must be a C-contiguous array (channels, 256) on the CPU");
    const nb::dlpack::dtype half{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    require(levels.dtype() == nb::dtype<float>() || levels.dtype() == nb::dtype<uint16_t>() || levels.dtype() == half,
            "levels must be float32, float16 or uint16 (the bits of bfloat16)");
    require(out.dtype() == levels.dtype(), "out must have the dtype of levels");
    require(static_cast<int>(levels.shape(0)) == result.channels, "levels must be (channels, 256)");
    result.levels = levels.data();
    result.level_size = levels.dtype().bits / 8;
  }
  return result;
}

class PyPool {
 public:
  PyPool(int threads, const std::string& kernels) : pool_(threads, kernels_named(kernels)) {}

  // NOLINTNEXTLINE(readability-function-size): one row for each array of the batch
  Failures decode_batch(Column<uint64_t> address, Column<int64_t> length, Column<uint8_t> codec, Column<int32_t> width,
                        Column<int32_t> height, Table<int32_t, 4> box, Table<double, 4> window, Table<int32_t, 2> size,
                        Table<int32_t, 4> rect, Column<bool> hflip, Column<bool> vflip,
                        std::tuple<int, int, int> fill, std::tuple<int, bool, int64_t, bool, int> options,
                        nb::ndarray<nb::ndim<4>, nb::device::cpu> out, nb::object levels) {
    Batch batch{};
    batch.count = static_cast<int64_t>(out.shape(0));
    const size_t n = out.shape(0);
    require(address.shape(0) == n && length.shape(0) == n && codec.shape(0) == n && width.shape(0) == n &&
                height.shape(0) == n && box.shape(0) == n && window.shape(0) == n && size.shape(0) == n &&
                rect.shape(0) == n && hflip.shape(0) == n && vflip.shape(0) == n,
            "all arrays must be as long as out");
    batch.address = address.data();
    batch.length = length.data();
    batch.codec = codec.data();
    batch.width = width.data();
    batch.height = height.data();
    batch.box = box.data();
    batch.window = window.data();
    batch.size = size.data();
    batch.rect = rect.data();
    batch.hflip = hflip.data();
    batch.vflip = vflip.data();
    batch.out = output_of(out, levels);
    for (size_t i = 0; i < n; ++i) {
      require(batch.rect[4 * i + 2] == batch.out.width && batch.rect[4 * i + 3] == batch.out.height,
              "every rect must have the width and height of out");
      require(batch.length[i] >= 0, "lengths must not be negative");
    }
    batch.options.filter = static_cast<fastdata::Filter>(std::get<0>(options));
    batch.options.antialias = std::get<1>(options);
    batch.options.max_pixels = std::get<2>(options);
    batch.options.plain = std::get<3>(options);
    batch.options.margin = std::get<4>(options);
    const int colour[3] = {std::get<0>(fill), std::get<1>(fill), std::get<2>(fill)};
    for (int c = 0; c < 3; ++c) batch.options.fill[c] = static_cast<uint8_t>(colour[c]);
    std::vector<fastdata::Failure> failures;
    {
      nb::gil_scoped_release release;
      failures = pool_.run(batch);
    }
    Failures result;
    for (fastdata::Failure& failure : failures) {
      result.emplace_back(failure.index, failure.status, std::move(failure.message));
    }
    return result;
  }

  void close() {
    nb::gil_scoped_release release;
    pool_.stop();
  }

  int threads() const { return pool_.threads(); }

 private:
  fastdata::Pool pool_;
};

std::tuple<int, std::string, int, int, int> read_header(Bytes data) {
  nb::gil_scoped_release release;
  fastdata::JpegReader reader;
  const fastdata::Status status = reader.open(data.data(), data.shape(0));
  return {status, reader.message(), reader.width(), reader.height(), reader.components()};
}

std::tuple<int, std::string> decode_whole(
    Bytes data, nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> pixels) {
  nb::gil_scoped_release release;
  fastdata::Scratch scratch(fastdata::generic_kernels());
  char message[fastdata::kMessageSize];
  const fastdata::Status status = fastdata::decode_whole(scratch, data.data(), data.shape(0), pixels.shape(0),
                                                         pixels.shape(1), pixels.shape(2), pixels.data(), message);
  return {status, message};
}

std::tuple<int, std::string, nb::bytes> transcode(Bytes data, int rows, int blocks, int64_t max_pixels) {
  require(rows >= 0 && blocks >= 0 && (rows == 0) != (blocks == 0), "rows or blocks must be above 0, the other one 0");
  std::vector<uint8_t> made;
  char message[fastdata::kMessageSize];
  fastdata::Status status;
  {
    nb::gil_scoped_release release;
    status = fastdata::transcode_jpeg(data.data(), data.shape(0), {rows, blocks}, max_pixels, made, message);
  }
  if (status != fastdata::kOk) made.clear();
  return {status, message, nb::bytes(made.data(), made.size())};
}

std::tuple<std::vector<uint64_t>, std::vector<uint64_t>> channel_sums(
    nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> pixels, const std::string& kernels_name) {
  const size_t channels = pixels.shape(2);
  require(channels == 1 || channels == 3, "pixels must have 1 or 3 channels");
  const fastdata::Kernels& kernels = kernels_named(kernels_name);
  std::vector<uint64_t> values(channels), squares(channels);
  nb::gil_scoped_release release;
  fastdata::channel_sums(kernels, pixels.data(), pixels.shape(0) * pixels.shape(1), static_cast<int>(channels),
                         values.data(), squares.data());
  return {values, squares};
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "fastdata's compiled core; fastdata.decoding.native_decoder is its only caller.";
  nb::class_<PyPool>(m, "Pool")
      .def(nb::init<int, std::string>(), "threads"_a, "kernels"_a = "")
      .def("decode_batch", &PyPool::decode_batch, "address"_a, "length"_a, "codec"_a, "width"_a, "height"_a, "box"_a,
           "window"_a, "size"_a, "rect"_a, "hflip"_a, "vflip"_a, "fill"_a, "options"_a, "out"_a,
           "levels"_a.none())
      .def("close", &PyPool::close)
      .def_prop_ro("threads", &PyPool::threads);
  m.def("read_header", &read_header, "data"_a, "Return (status, message, width, height, components) of a JPEG.");
  m.def("decode_whole", &decode_whole, "data"_a, "pixels"_a,
        "Decode a whole JPEG into uint8 (height, width, 1 or 3); return (status, message).");
  m.def("transcode", &transcode, "data"_a, "rows"_a, "blocks"_a, "max_pixels"_a,
        "Give a JPEG restart markers without decoding it; return (status, message, bytes).");
  m.def("channel_sums", &channel_sums, "pixels"_a, "kernels"_a = "",
        "Return the sums of values and of squares of uint8 (height, width, 1 or 3), per channel.");
  m.def("kernels", [] { return std::string(fastdata::best_kernels().name); }, "Name of the best kernels here.");
  m.attr("libjpeg") = FASTDATA_STRING(LIBJPEG_TURBO_VERSION);
}
