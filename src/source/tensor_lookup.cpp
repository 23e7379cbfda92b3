#include "source/tensor_lookup.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "quant/codec.h"
#include "source/checkpoint_files.h"

namespace moeflux {
namespace {

using Shape = std::vector<std::int64_t>;

// What a caller asks for: one matrix, or a stack of them when n_experts > 0.
struct Request {
  const ModelSource& source;
  const std::string& module;
  int n_experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  Shape shape(std::int64_t n_rows, std::int64_t n_cols) const {
    return n_experts > 0 ? Shape{n_experts, n_rows, n_cols} : Shape{n_rows, n_cols};
  }
};

struct Named {
  std::string name;
  const TensorInfo* info = nullptr;
};

// The planes of the first (or only) matrix, and the steps to the next one.
struct Found {
  StoredMatrix matrix;
  StoredExpertBank::Strides strides;
};

[[noreturn]] void wrong_shape(const ModelSource& source, const Named& tensor,
                              std::string_view wanted) {
  fail(Errc::BadInput, "{}: tensor \"{}\" is {} {}, but the config asks for {}", source.path(),
       tensor.name, dtype_name(tensor.info->dtype), shape_text(tensor.info->shape), wanted);
}

Named need(const Request& want, const std::string& name, std::string_view why) {
  return {name, &need_tensor(want.source, name, why)};
}

Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

bool same_shape(const Shape& a, const Shape& b) {
  return squeezed(a) == squeezed(b);
}

// A stack is sliced along its first dimension, so that one is compared as it is.
bool has_shape(const Request& want, const TensorInfo& info, std::int64_t rows, std::int64_t cols) {
  if (want.n_experts == 0) return same_shape(info.shape, {rows, cols});
  return !info.shape.empty() && info.shape.front() == want.n_experts &&
         same_shape(Shape(info.shape.begin() + 1, info.shape.end()), {rows, cols});
}

void need_shape(const Request& want, const Named& tensor, std::int64_t rows, std::int64_t cols) {
  if (!has_shape(want, *tensor.info, rows, cols)) {
    wrong_shape(want.source, tensor, shape_text(want.shape(rows, cols)));
  }
}

// Where the first matrix of the tensor lies; `stride` is the step to the next.
Extent take_plane(const Request& want, const TensorInfo& info, std::uint64_t& stride) {
  if (want.n_experts == 0) return info.extent();
  stride = info.slice_stride;
  return {info.file, info.offset, info.slice_bytes()};
}

Named find_weight(const Request& want) {
  const std::string with_suffix = want.module + ".weight";
  const bool is_bare =
      !has_tensor(want.source, with_suffix) && has_tensor(want.source, want.module);
  return need(want, is_bare ? want.module : with_suffix,
              fmt::format("the config asks for {}", shape_text(want.shape(want.rows, want.cols))));
}

Found take_plain(const Request& want, const Named& weight, WeightKind kind) {
  need_shape(want, weight, want.rows, want.cols);
  Found found;
  found.matrix.format.kind = kind;
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  return found;
}

template <std::size_t N>
bool one_of(std::int64_t value, const std::array<int, N>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

// bits = 32 * packed columns / columns: the config's bits are not needed and may be stale.
int affine_bits(const Request& want, const Named& weight) {
  const std::int64_t packed = weight.info->shape.empty() ? 0 : weight.info->shape.back();
  const std::int64_t bits = packed * 32 / want.cols;
  const bool whole = bits * want.cols == packed * 32;
  if (!whole || !one_of(bits, std::array{2, 3, 4, 5, 6, 8})) {
    wrong_shape(want.source, weight,
                fmt::format("{} packed in 2, 3, 4, 5, 6 or 8 bits",
                            shape_text(want.shape(want.rows, want.cols))));
  }
  need_shape(want, weight, want.rows, packed);
  return static_cast<int>(bits);
}

int affine_group(const Request& want, const Named& scales) {
  const std::int64_t groups = scales.info->shape.empty() ? 0 : scales.info->shape.back();
  const std::int64_t group = groups == 0 ? 0 : want.cols / groups;
  if (group * groups != want.cols || !one_of(group, std::array{32, 64, 128})) {
    wrong_shape(want.source, scales,
                fmt::format("groups of 32, 64 or 128 columns of {}",
                            shape_text(want.shape(want.rows, want.cols))));
  }
  need_shape(want, scales, want.rows, groups);
  return static_cast<int>(group);
}

Found take_affine(const Request& want, const Named& weight) {
  const std::string why = fmt::format("the packed matrix \"{}\" needs it", weight.name);
  const Named scales = need(want, want.module + ".scales", why);
  if (scales.info->dtype == DType::U8) {
    fail(Errc::Unsupported,
         "{}: tensor \"{}\" is U8: mxfp4, mxfp8 and nvfp4 are not supported, only affine is",
         want.source.path(), scales.name);
  }
  const Named biases = need(want, want.module + ".biases", why);
  const DType dtype = scales.info->dtype;
  if (dtype != DType::BF16 && dtype != DType::F16 && dtype != DType::F32) {
    wrong_shape(want.source, scales, "BF16, F16 or F32");
  }
  Found found;
  found.matrix.format = {.kind = WeightKind::Affine,
                         .bits = affine_bits(want, weight),
                         .group = affine_group(want, scales),
                         .scale_dtype = dtype,
                         .is_interleaved = weight.info->is_interleaved};
  if (scales.info->is_interleaved != weight.info->is_interleaved ||
      biases.info->is_interleaved != weight.info->is_interleaved) {
    fail(Errc::BadInput,
         "{}: of \"{}\", its scales and its biases only some are in interleaved tiles",
         want.source.path(), weight.name);
  }
  if (biases.info->dtype != dtype || biases.info->shape != scales.info->shape) {
    wrong_shape(want.source, biases,
                fmt::format("the same as its scales, {} {}", dtype_name(dtype),
                            shape_text(scales.info->shape)));
  }
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  found.matrix.biases = take_plane(want, *biases.info, found.strides.biases);
  return found;
}

Found take_fp8(const Request& want, const Named& weight) {
  need_shape(want, weight, want.rows, want.cols);
  const Named scales = need(want, weight.name + "_scale_inv",
                            fmt::format("the F8_E4M3 matrix \"{}\" needs it", weight.name));
  if (scales.info->dtype != DType::F32 && scales.info->dtype != DType::BF16) {
    wrong_shape(want.source, scales, "F32 or BF16");
  }
  const int block = fp8_block_edge(want.source.config());
  const auto blocks = [&](std::int64_t n) { return (n + block - 1) / block; };
  need_shape(want, scales, blocks(want.rows), blocks(want.cols));
  Found found;
  found.matrix.format = {
      .kind = WeightKind::Fp8Block, .block = block, .scale_dtype = scales.info->dtype};
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  return found;
}

Found take_by_dtype(const Request& want, const Named& weight) {
  switch (weight.info->dtype) {
    case DType::F32:
      return take_plain(want, weight, WeightKind::F32);
    case DType::F16:
      return take_plain(want, weight, WeightKind::F16);
    case DType::BF16:
      return take_plain(want, weight, WeightKind::BF16);
    case DType::U32:
      return take_affine(want, weight);
    case DType::F8E4M3:
      return take_fp8(want, weight);
    default:
      fail(Errc::Unsupported,
           "{}: tensor \"{}\" is {} {}; a matrix can be F32, F16, BF16, F8_E4M3 with block scales "
           "or U32 packed by MLX",
           want.source.path(), weight.name, dtype_name(weight.info->dtype),
           shape_text(weight.info->shape));
  }
}

Found find_planes(const Request& want) {
  MOEFLUX_ASSERT(want.rows > 0 && want.cols > 0);
  const Named weight = find_weight(want);
  Found found = take_by_dtype(want, weight);
  found.matrix.name = weight.name;
  found.matrix.rows = want.rows;
  found.matrix.cols = want.cols;
  return found;
}

}  // namespace

bool has_tensor(const ModelSource& source, const std::string& name) {
  return source.find(name) != nullptr || source.find_unread(name) != nullptr;
}

const TensorInfo& need_tensor(const ModelSource& source, const std::string& name,
                              std::string_view why) {
  if (const TensorInfo* info = source.find(name)) return *info;
  if (const UnreadTensor* unread = source.find_unread(name)) {
    fail(Errc::Unsupported, "{}: tensor \"{}\" has the element type {}, which is not supported; {}",
         source.path(), name, unread->dtype, why);
  }
  fail(Errc::NotFound, "{}: tensor \"{}\" is missing; {}", source.path(), name, why);
}

bool has_module(const ModelSource& source, const std::string& module) {
  return has_tensor(source, module + ".weight") || has_tensor(source, module);
}

StoredMatrix find_matrix(const ModelSource& source, const std::string& module, std::int64_t rows,
                         std::int64_t cols) {
  return find_planes({.source = source, .module = module, .rows = rows, .cols = cols}).matrix;
}

StoredExpertBank find_stacked_matrices(const ModelSource& source, const std::string& module,
                                       int n_experts, std::int64_t rows, std::int64_t cols) {
  MOEFLUX_ASSERT(n_experts > 0);
  Found found = find_planes({source, module, n_experts, rows, cols});
  return StoredExpertBank(std::move(found.matrix), found.strides, n_experts);
}

StoredVector find_vector(const ModelSource& source, const std::string& name, std::int64_t size,
                         int count) {
  MOEFLUX_ASSERT(size > 0 && count > 0);
  const Shape shape = count > 1 ? Shape{count, size} : Shape{size};
  const TensorInfo& info =
      need_tensor(source, name, fmt::format("the config asks for {}", shape_text(shape)));
  const bool is_float =
      info.dtype == DType::F32 || info.dtype == DType::F16 || info.dtype == DType::BF16;
  if (!is_float || !same_shape(info.shape, shape)) {
    wrong_shape(source, {name, &info}, fmt::format("{} of F32, F16 or BF16", shape_text(shape)));
  }
  return {.name = name, .dtype = info.dtype, .size = size * count, .data = info.extent()};
}

std::vector<float> read_vector(const ModelSource& source, const StoredVector& vector) {
  std::vector<std::byte> bytes(vector.data.bytes);
  source.read(vector.data, bytes);
  std::vector<float> values(static_cast<std::size_t>(vector.size));
  decode_floats(vector.dtype, bytes.data(), vector.size, values.data());
  for (float& value : values) value += vector.shift;
  return values;
}

}  // namespace moeflux
