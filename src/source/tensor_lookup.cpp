#include "source/tensor_lookup.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "source/lookup_request.h"
#include "source/quant_settings.h"

namespace moeflux {

namespace lookup {

Named need(const Request& want, const std::string& name, std::string_view why) {
  return {name, &need_tensor(want.source, name, why)};
}

void wrong_shape(const Request& want, const Named& tensor, std::string_view wanted) {
  fail(Errc::BadInput, "{}: tensor \"{}\" is {} {}, but the config asks for {}", want.source.path(),
       tensor.name, dtype_name(tensor.info->dtype), shape_text(tensor.info->shape), wanted);
}

namespace {

Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

bool same_shape(const Shape& a, const Shape& b) {
  return squeezed(a) == squeezed(b);
}

}  // namespace

// A stack is sliced along its first dimension, so that one is compared as it is.
bool has_shape(const Request& want, const TensorInfo& info, std::int64_t rows, std::int64_t cols) {
  if (want.n_experts == 0) return same_shape(info.shape, {rows, cols});
  return !info.shape.empty() && info.shape.front() == want.n_experts &&
         same_shape(Shape(info.shape.begin() + 1, info.shape.end()), {rows, cols});
}

void need_shape(const Request& want, const Named& tensor, std::int64_t rows, std::int64_t cols) {
  if (!has_shape(want, *tensor.info, rows, cols))
    wrong_shape(want, tensor, shape_text(want.shape(rows, cols)));
}

void need_dtype(const Request& want, const Named& tensor, std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), tensor.info->dtype) != allowed.end()) return;
  std::string names;
  for (const DType* type = allowed.begin(); type != allowed.end(); ++type) {
    const bool is_last = type + 1 == allowed.end();
    names += fmt::format("{}{}",
                         type == allowed.begin() ? ""
                         : is_last               ? " or "
                                                 : ", ",
                         dtype_name(*type));
  }
  wrong_shape(want, tensor, names);
}

std::int64_t last_dimension(const TensorInfo& info) {
  return info.shape.empty() ? 0 : info.shape.back();
}

Extent take_plane(const Request& want, const TensorInfo& info, std::uint64_t& stride) {
  if (want.n_experts == 0) return info.extent();
  stride = info.slice_stride;
  return {info.file, info.offset, info.slice_bytes()};
}

Extent take_number(const Request& want, const Named& tensor, std::uint64_t& stride) {
  const TensorInfo& info = *tensor.info;
  const auto n = static_cast<std::uint64_t>(std::max(want.n_experts, 1));
  if (info.bytes != n * dtype_size(info.dtype))
    wrong_shape(want, tensor, n == 1 ? "a single number" : fmt::format("{} numbers", n));
  return take_plane(want, info, stride);
}

void set_repack(const Request& want, Found& found, Repack how) {
  how.stored_rows = want.rows;
  how.rows = {{.first = 0, .take = want.rows, .stride = want.rows}};
  const StoredMatrix& m = found.matrix;
  const PlaneBytes there{m.data.bytes, m.scales.bytes, m.biases.bytes};
  if (there != stored_bytes(how, m.format, want.cols)) {
    fail(Errc::BadInput, "{}: the tensors of \"{}\" do not have the sizes that {} needs",
         want.source.path(), want.module, shape_text(want.shape(want.rows, want.cols)));
  }
  found.matrix.repack = std::make_shared<const Repack>(std::move(how));
}

Found take_fp4(const Request& want, const Named& codes, const Named& scales,
               const Named& tensor_scale, bool divides) {
  // Of gpt-oss [rows, cols / 32, 16], of others [rows, cols / 2].
  const TensorInfo& info = *codes.info;
  const std::size_t rank = (want.n_experts > 0 ? 1 : 0) + 3;
  const bool in_blocks = info.shape.size() == rank && info.shape.back() == 16;
  const std::int64_t per_byte = codes.info->dtype == DType::U32 ? 8 : 2;
  const Shape wanted = want.n_experts > 0 ? Shape{want.n_experts, want.rows, want.cols / 32, 16}
                                          : Shape{want.rows, want.cols / 32, 16};
  if (!in_blocks || info.shape != wanted) {
    if (want.cols % per_byte != 0)
      wrong_shape(want, codes, shape_text(want.shape(want.rows, want.cols)) + " in pairs");
    need_shape(want, codes, want.rows, want.cols / per_byte);
  }
  need_dtype(want, scales, {DType::U8, DType::F8E4M3});
  const std::int64_t n_groups = last_dimension(*scales.info);
  const std::int64_t group = n_groups == 0 ? 0 : want.cols / n_groups;
  if (group * n_groups != want.cols || (group != 16 && group != 32)) {
    wrong_shape(want, scales,
                fmt::format("groups of 16 or 32 columns of {}",
                            shape_text(want.shape(want.rows, want.cols))));
  }
  need_shape(want, scales, want.rows, n_groups);
  Found found;
  found.matrix.format = {.kind = WeightKind::Fp4,
                         .group = static_cast<int>(group),
                         .scale_dtype = scales.info->dtype,
                         .is_interleaved = codes.info->is_interleaved,
                         .has_tensor_scale = tensor_scale.info != nullptr,
                         .tensor_scale_divides = tensor_scale.info != nullptr && divides};
  found.matrix.data = take_plane(want, *codes.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  if (tensor_scale.info != nullptr) {
    need_dtype(want, tensor_scale, {DType::F32});
    found.matrix.biases = take_number(want, tensor_scale, found.strides.biases);
  }
  return found;
}

}  // namespace lookup

namespace {

using namespace lookup;

std::string needs(const Named& weight) {
  return fmt::format("the {} matrix \"{}\" needs it", dtype_name(weight.info->dtype), weight.name);
}

Named find_weight(const Request& want) {
  const std::string with_suffix = want.module + ".weight";
  const bool is_bare =
      !has_tensor(want.source, with_suffix) && has_tensor(want.source, want.module);
  return need(want, is_bare ? want.module : with_suffix,
              fmt::format("the config asks for {}", shape_text(want.shape(want.rows, want.cols))));
}

Found take_plain(const Request& want, const Named& weight, WeightKind kind) {
  Found found;
  found.matrix.format.kind = kind;
  const bool is_transposed = want.floats == FloatStack::Transposed;
  is_transposed ? need_shape(want, weight, want.cols, want.rows)
                : need_shape(want, weight, want.rows, want.cols);
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  if (is_transposed) set_repack(want, found, {.packing = Packing::Transposed});
  return found;
}

// ---- MLX
// -------------------------------------------------------------------------------------------------

template <std::size_t N>
bool one_of(std::int64_t value, const std::array<int, N>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

// bits = 32 * packed columns / columns: the config's bits are not needed and may be stale.
int packed_bits(const Request& want, const Named& weight) {
  const std::int64_t packed = last_dimension(*weight.info);
  const std::int64_t bits = packed * 32 / want.cols;
  const bool whole = bits * want.cols == packed * 32;
  if (!whole || !one_of(bits, std::array{2, 3, 4, 5, 6, 8})) {
    wrong_shape(want, weight,
                fmt::format("{} packed in 2, 3, 4, 5, 6 or 8 bits",
                            shape_text(want.shape(want.rows, want.cols))));
  }
  need_shape(want, weight, want.rows, packed);
  return static_cast<int>(bits);
}

int affine_group(const Request& want, const Named& scales) {
  const std::int64_t groups = last_dimension(*scales.info);
  const std::int64_t group = groups == 0 ? 0 : want.cols / groups;
  // A container also has groups of odd matrices.
  const bool is_known = one_of(group, std::array{32, 64, 128}) ||
                        want.source.layout() == ModelSource::Layout::Container;
  if (groups == 0 || group * groups != want.cols || !is_known) {
    wrong_shape(want, scales,
                fmt::format("groups of 32, 64 or 128 columns of {}",
                            shape_text(want.shape(want.rows, want.cols))));
  }
  need_shape(want, scales, want.rows, groups);
  return static_cast<int>(group);
}

// E4M3 codes, four in a dword, with E8M0 scales for 32 columns of a row.
Found take_mxfp8(const Request& want, const Named& weight, const Named& scales) {
  need_shape(want, weight, want.rows, want.cols / 4);
  if (want.cols % 32 != 0) wrong_shape(want, weight, "groups of 32 columns");
  need_dtype(want, scales, {DType::U8});
  need_shape(want, scales, want.rows, want.cols / 32);
  Found found;
  found.matrix.format = {
      .kind = WeightKind::Fp8Block, .block = 32, .scale_dtype = DType::U8, .block_rows = 1};
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  return found;
}

// U8 scales: E8M0 for 32 columns, or E4M3 for 16.
Found take_mlx_floats(const Request& want, const Named& weight, const Named& scales) {
  if (packed_bits(want, weight) == 8) return take_mxfp8(want, weight, scales);
  Found found = take_fp4(want, weight, scales);
  if (found.matrix.format.group == 16) found.matrix.format.scale_dtype = DType::F8E4M3;
  return found;
}

Found take_mlx(const Request& want, const Named& weight) {
  const Named scales = need(want, want.module + ".scales",
                            fmt::format("the packed matrix \"{}\" needs it", weight.name));
  const std::string biases_name = want.module + ".biases";
  if (scales.info->dtype == DType::U8 && !has_tensor(want.source, biases_name))
    return take_mlx_floats(want, weight, scales);
  const Named biases =
      need(want, biases_name, fmt::format("the packed matrix \"{}\" needs it", weight.name));
  const DType dtype = scales.info->dtype;
  need_dtype(want, scales, {DType::BF16, DType::F16, DType::F32});
  Found found;
  found.matrix.format = {.kind = WeightKind::Affine,
                         .bits = packed_bits(want, weight),
                         .group = affine_group(want, scales),
                         .scale_dtype = dtype,
                         .is_interleaved = weight.info->is_interleaved};
  if (biases.info->dtype != dtype || biases.info->shape != scales.info->shape) {
    wrong_shape(want, biases,
                fmt::format("the same as its scales, {} {}", dtype_name(dtype),
                            shape_text(scales.info->shape)));
  }
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  found.matrix.biases = take_plane(want, *biases.info, found.strides.biases);
  return found;
}

// Planes of a container are in interleaved tiles or in rows together; a tensor scale is in neither.
void check_tiles(const Request& want, const StoredMatrix& matrix) {
  for (const std::string_view suffix : {".scales", ".biases", ".weight_scale", ".weight_zeros"}) {
    const TensorInfo* plane = want.source.find(want.module + std::string(suffix));
    if (plane == nullptr || plane->is_interleaved == matrix.format.is_interleaved) continue;
    if (plane->slice_bytes() == dtype_size(plane->dtype)) continue;
    fail(Errc::BadInput,
         "{}: of \"{}\", its scales and its biases only some are in interleaved tiles",
         want.source.path(), matrix.name);
  }
}

// ---- FP8
// -------------------------------------------------------------------------------------------------

// Squares whose edge the config tells.
void set_blocks(const Request& want, const Named& scales, WeightFormat& format) {
  const int block = fp8_block_edge(want.source.config());
  const auto blocks = [&](std::int64_t n) { return (n + block - 1) / block; };
  need_shape(want, scales, blocks(want.rows), blocks(want.cols));
  format.block = block;
}

// One for the tensor, one for each row, some for each row, or squares.
void set_by_shape(const Request& want, const Named& scales, WeightFormat& format) {
  const int edge = fp8_block_edge(want.source.config());
  const std::uint64_t n_matrices = static_cast<std::uint64_t>(std::max(want.n_experts, 1));
  if (scales.info->bytes == n_matrices * dtype_size(scales.info->dtype)) {
    format.block = kWholeBlock;
  } else if (has_shape(want, *scales.info, want.rows, 1)) {
    format.block = kWholeBlock;
    format.block_rows = 1;
  } else if (has_shape(want, *scales.info, want.rows, (want.cols + edge - 1) / edge)) {
    format.block = edge;
    format.block_rows = 1;
  } else {
    set_blocks(want, scales, format);
  }
}

Found take_fp8(const Request& want, const Named& weight) {
  need_shape(want, weight, want.rows, want.cols);
  Found found;
  WeightFormat& format = found.matrix.format;
  format.kind = WeightKind::Fp8Block;
  Named scales;
  if (has_tensor(want.source, weight.name + "_scale")) {
    scales = need(want, weight.name + "_scale", needs(weight));
    need_dtype(want, scales, {DType::F32, DType::BF16, DType::F16});
    set_by_shape(want, scales, format);
  } else if (has_tensor(want.source, want.module + ".scale")) {
    scales = need(want, want.module + ".scale", needs(weight));
    need_dtype(want, scales, {DType::U8, DType::F32, DType::BF16});
    set_blocks(want, scales, format);
  } else {
    scales = need(want, weight.name + "_scale_inv", needs(weight));
    need_dtype(want, scales, {DType::F32, DType::BF16});
    set_blocks(want, scales, format);
  }
  format.scale_dtype = scales.info->dtype;
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  return found;
}

// ---- the rest
// -------------------------------------------------------------------------------------------------

// U8: two E2M1 codes of ModelOpt in a byte. I8: those of DeepSeek-V4, or integers.
Found take_bytes(const Request& want, const Named& weight) {
  if (has_tensor(want.source, want.module + ".scale"))
    return take_fp4(want, weight, need(want, want.module + ".scale", needs(weight)));
  if (weight.info->dtype == DType::I8) return take_signed(want, weight);
  const Named scales = need(want, weight.name + "_scale", needs(weight));
  return take_fp4(want, weight, scales, need(want, weight.name + "_scale_2", needs(weight)));
}

// Of a GGUF file.
Found take_blocks(const Request& want, const Named& weight) {
  need_shape(want, weight, want.rows, want.cols);
  Found found;
  found.matrix.data = take_plane(want, *weight.info, found.strides.data);
  const std::string scale_name = want.module + ".scale";
  if (!has_tensor(want.source, scale_name)) {
    found.matrix.format = {.kind = WeightKind::Block, .blocks = weight.info->blocks};
    return found;
  }
  if (weight.info->blocks != BlockType::NVFP4) {
    fail(Errc::Unsupported, "{}: tensor \"{}\": a scale of {} weights is not supported",
         want.source.path(), scale_name, block_type_name(weight.info->blocks));
  }
  const Named scale = need(want, scale_name, needs(weight));
  need_dtype(want, scale, {DType::F32});
  found.matrix.biases = take_number(want, scale, found.strides.biases);
  found.matrix.format = {
      .kind = WeightKind::Fp4, .group = 16, .scale_dtype = DType::F8E4M3, .has_tensor_scale = true};
  set_repack(want, found, {.packing = Packing::Nvfp4Blocks});
  return found;
}

Found take_by_dtype(const Request& want, const Named& weight) {
  if (weight.info->blocks != BlockType::None) return take_blocks(want, weight);
  switch (weight.info->dtype) {
    case DType::F32:
      return take_plain(want, weight, WeightKind::F32);
    case DType::F16:
      return take_plain(want, weight, WeightKind::F16);
    case DType::BF16:
      return take_plain(want, weight, WeightKind::BF16);
    case DType::U32:
      return take_mlx(want, weight);
    case DType::F8E4M3:
      return take_fp8(want, weight);
    case DType::U8:
    case DType::I8:
      return take_bytes(want, weight);
    default:
      fail(Errc::Unsupported,
           "{}: tensor \"{}\" is {} {}; a matrix can be F32, F16, BF16, F8_E4M3, I8, U8, or U32 "
           "packed by MLX",
           want.source.path(), weight.name, dtype_name(weight.info->dtype),
           shape_text(weight.info->shape));
  }
}

Found find_planes(const Request& want) {
  MOEFLUX_ASSERT(want.rows > 0 && want.cols > 0);
  const auto has = [&](const char* suffix) {
    return has_tensor(want.source, want.module + suffix);
  };
  Found found;
  if (has(".qweight")) {
    found = take_qweight(want);
    found.matrix.name = want.module + ".qweight";
  } else if (has(".weight_packed")) {
    found = take_weight_packed(want);
    found.matrix.name = want.module + ".weight_packed";
  } else if (has("_blocks")) {
    const Named blocks = need(want, want.module + "_blocks", "");
    need_dtype(want, blocks, {DType::U8});
    found = take_fp4(want, blocks, need(want, want.module + "_scales", needs(blocks)));
    found.matrix.name = blocks.name;
  } else {
    const Named weight = find_weight(want);
    found = take_by_dtype(want, weight);
    found.matrix.name = weight.name;
  }
  found.matrix.rows = want.rows;
  found.matrix.cols = want.cols;
  check_tiles(want, found.matrix);
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
  constexpr const char* kSuffixes[] = {".weight", "", ".qweight", ".weight_packed", "_blocks"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](const char* suffix) { return has_tensor(source, module + suffix); });
}

StoredMatrix find_matrix(const ModelSource& source, const std::string& module, std::int64_t rows,
                         std::int64_t cols) {
  return find_planes({.source = source, .module = module, .rows = rows, .cols = cols}).matrix;
}

StoredExpertBank find_stacked_matrices(const ModelSource& source, const std::string& module,
                                       int n_experts, std::int64_t rows, std::int64_t cols,
                                       FloatStack floats) {
  MOEFLUX_ASSERT(n_experts > 0);
  // A container holds experts in rows, whatever its source did.
  if (source.layout() == ModelSource::Layout::Container) floats = FloatStack::Matrices;
  Found found = find_planes({source, module, n_experts, rows, cols, floats});
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
    wrong_shape({.source = source, .module = name}, {name, &info},
                fmt::format("{} of F32, F16 or BF16", shape_text(shape)));
  }
  return {.name = name, .dtype = info.dtype, .size = size * count, .data = info.extent()};
}

std::vector<float> read_vector(const ModelSource& source, const StoredVector& vector) {
  std::vector<std::byte> bytes(vector.data.bytes);
  source.read(vector.data, bytes);
  std::vector<float> values = vector.decode(bytes.data());
  for (float& value : values) value += vector.shift;
  return values;
}

}  // namespace moeflux
