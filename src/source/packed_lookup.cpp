// Integers as other programs pack them. In memory they are affine with a zero point or with zero in
// the middle of the codes; scales stand for 128, 64 or 32 columns where that divides what they are
// stored for, so that products take the fast way.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "source/lookup_request.h"
#include "source/quant_settings.h"

namespace moeflux::lookup {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// What the config says, which a container's planes do not follow.
QuantSettings settings_of(const Request& want) {
  if (want.source.layout() == ModelSource::Layout::Container && want.n_experts > 0) return {};
  return quant_settings(want.source.config());
}

[[noreturn]] void contradicts(const Request& want, const Named& tensor,
                              const QuantSettings& settings, std::string_view what) {
  fail(Errc::BadInput, "{}: tensor \"{}\" is {} {}, which contradicts {} of {} in {}",
       want.source.path(), tensor.name, dtype_name(tensor.info->dtype),
       shape_text(tensor.info->shape), what, settings.origin, want.source.config_origin());
}

void check_bits(const Request& want, const Named& tensor, const QuantSettings& settings,
                std::int64_t bits) {
  const auto& known = settings.bits;
  if (known.empty() || std::find(known.begin(), known.end(), bits) != known.end()) return;
  contradicts(want, tensor, settings, fmt::format("{} bits", fmt::join(known, " or ")));
}

// Columns that share a scale, from the number of groups and what the config says.
std::int64_t group_of(const Request& want, const Named& scales, const QuantSettings& settings,
                      std::int64_t n_groups) {
  for (const std::int64_t group : settings.group_sizes) {
    const std::int64_t columns = group == 0 ? want.cols : std::min(group, want.cols);
    if (ceil_div(want.cols, columns) == n_groups) return columns;
  }
  if (!settings.group_sizes.empty()) {
    contradicts(want, scales, settings,
                fmt::format("groups of {}", fmt::join(settings.group_sizes, " or ")));
  }
  if (n_groups <= 0 || want.cols % n_groups != 0) {
    wrong_shape(want, scales, fmt::format("groups of equal size of {} columns", want.cols));
  }
  return want.cols / n_groups;
}

int group_in_memory(std::int64_t stored, std::int64_t cols) {
  for (const int group : {128, 64, 32})
    if (stored % group == 0 && cols % group == 0) return group;
  return static_cast<int>(std::gcd(stored, cols));
}

// Scales as floats [rows, n] or [n, rows].
void need_float_scales(const Request& want, const Named& scales) {
  need_dtype(want, scales, {DType::F16, DType::BF16, DType::F32});
}

// The format in memory; that of integers with n_groups groups of stored_group.
WeightFormat int_format(const Request& want, int bits, std::int64_t stored_group,
                        const Named& scales, bool has_zeros) {
  return {.kind = WeightKind::Affine,
          .bits = bits,
          .group = group_in_memory(stored_group, want.cols),
          .scale_dtype = scales.info->dtype,
          .zero = has_zeros ? AffineZero::ZeroPoint : AffineZero::MidCode};
}

bool has_sibling(const Request& want, std::string_view suffix) {
  return has_tensor(want.source, want.module + std::string(suffix));
}

// The groups must be columns 0 .. G-1, G .. 2G-1, ...
void check_group_order(const Request& want, const Named& order, std::int64_t group) {
  need_dtype(want, order, {DType::I32});
  if (order.info->shape != Shape{want.cols}) wrong_shape(want, order, shape_text(Shape{want.cols}));
  std::vector<std::byte> bytes(order.info->bytes);
  want.source.read(order.info->extent(), bytes);
  for (std::int64_t c = 0; c < want.cols; ++c) {
    std::int32_t index = 0;
    std::memcpy(&index, &bytes[static_cast<std::size_t>(c * 4)], sizeof index);
    if (index != c / group) {
      fail(Errc::Unsupported,
           "{}: tensor \"{}\": columns are grouped in activation order, which is not supported; "
           "take a release without it (desc_act false)",
           want.source.path(), order.name);
    }
  }
}

// [2] of I64 or I32: rows and columns before packing.
void check_weight_shape(const Request& want, const Named& shape) {
  need_dtype(want, shape, {DType::I64, DType::I32});
  const std::size_t size = dtype_size(shape.info->dtype);
  if (shape.info->bytes != 2 * size) wrong_shape(want, shape, "[2]");
  std::vector<std::byte> bytes(2 * size);
  want.source.read(shape.info->extent(), bytes);
  std::array<std::int64_t, 2> sizes{};
  for (std::size_t i = 0; i < 2; ++i) std::memcpy(&sizes[i], &bytes[i * size], size);
  if (sizes[0] != want.rows || sizes[1] != want.cols) {
    fail(Errc::BadInput, "{}: tensor \"{}\" says [{}, {}], but the config asks for {}",
         want.source.path(), shape.name, sizes[0], sizes[1],
         shape_text(Shape{want.rows, want.cols}));
  }
}

Found take_gptq(const Request& want, const Named& codes, const QuantSettings& settings) {
  const std::int64_t dwords = codes.info->shape.size() < 2 ? 0 : *(codes.info->shape.end() - 2);
  const std::int64_t bits = dwords * 32 / want.cols;
  if (bits * want.cols != dwords * 32 || (bits != 2 && bits != 4 && bits != 8)) {
    wrong_shape(want, codes,
                fmt::format("{} packed in 2, 4 or 8 bits along the columns, [columns * bits / 32, "
                            "rows]",
                            shape_text(want.shape(want.rows, want.cols))));
  }
  check_bits(want, codes, settings, bits);
  need_shape(want, codes, dwords, want.rows);
  const std::string why = fmt::format("\"{}\" needs it", codes.name);
  const Named scales = need(want, want.module + ".scales", why);
  const Named zeros = need(want, want.module + ".qzeros", why);
  need_float_scales(want, scales);
  need_dtype(want, zeros, {DType::I32, DType::U32});
  const std::int64_t n_groups = scales.info->shape.size() < 2 ? 1 : *(scales.info->shape.end() - 2);
  need_shape(want, scales, n_groups, want.rows);
  need_shape(want, zeros, n_groups, ceil_div(want.rows * bits, 32));
  const std::int64_t group = group_of(want, scales, settings, n_groups);
  if (has_sibling(want, ".g_idx"))
    check_group_order(want, need(want, want.module + ".g_idx", why), group);

  Found found;
  found.matrix.format = int_format(want, static_cast<int>(bits), group, scales, true);
  found.matrix.data = take_plane(want, *codes.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  found.matrix.biases = take_plane(want, *zeros.info, found.strides.biases);
  const int zero_offset = settings.is_gptq_v2 ? 0 : 1;
  // Zero points of 256 do not fit into a byte.
  if (bits == 8 && zero_offset > 0 && scales.info->dtype != DType::F32) {
    found.matrix.format.zero = AffineZero::Bias;
    found.matrix.format.scale_dtype = DType::F32;
  }
  set_repack(want, found,
             {.packing = Packing::Gptq,
              .stored_group = group,
              .zero_offset = zero_offset,
              .stored_scale_dtype = scales.info->dtype});
  return found;
}

Found take_awq(const Request& want, const Named& codes, const QuantSettings& settings) {
  if (want.rows % 8 != 0) {
    wrong_shape(want, codes, fmt::format("{}; AWQ packs rows by eight", want.rows));
  }
  check_bits(want, codes, settings, 4);
  need_shape(want, codes, want.cols, want.rows / 8);
  const std::string why = fmt::format("\"{}\" needs it", codes.name);
  const Named scales = need(want, want.module + ".scales", why);
  const Named zeros = need(want, want.module + ".qzeros", why);
  need_float_scales(want, scales);
  need_dtype(want, zeros, {DType::I32, DType::U32});
  const std::int64_t n_groups = scales.info->shape.size() < 2 ? 1 : *(scales.info->shape.end() - 2);
  need_shape(want, scales, n_groups, want.rows);
  need_shape(want, zeros, n_groups, want.rows / 8);
  const std::int64_t group = group_of(want, scales, settings, n_groups);

  Found found;
  found.matrix.format = int_format(want, 4, group, scales, true);
  found.matrix.data = take_plane(want, *codes.info, found.strides.data);
  found.matrix.scales = take_plane(want, *scales.info, found.strides.scales);
  found.matrix.biases = take_plane(want, *zeros.info, found.strides.biases);
  set_repack(want, found, {.packing = Packing::Awq, .stored_group = group, .rows = {}});
  return found;
}

// Codes in rows of dwords or bytes, scales [rows, n groups], [rows], [1] or a single number.
// `packing` applies unless that is how they lie in memory.
Found take_int_rows(const Request& want, const Named& codes, const Named& scales,
                    const QuantSettings& settings, int bits, Packing packing,
                    const Named& zeros = {}) {
  need_float_scales(want, scales);
  Found found;
  Repack how{.packing = packing, .rows = {}};
  const std::uint64_t n_scales = scales.info->bytes / dtype_size(scales.info->dtype);
  how.has_one_scale = n_scales == (want.n_experts > 0 ? static_cast<unsigned>(want.n_experts) : 1u);
  how.stored_group = want.cols;
  if (!how.has_one_scale) {
    const auto all_rows = static_cast<std::uint64_t>(want.rows * std::max(want.n_experts, 1));
    const std::int64_t n_groups = n_scales == all_rows ? 1 : last_dimension(*scales.info);
    need_shape(want, scales, want.rows, n_groups);
    how.stored_group = group_of(want, scales, settings, n_groups);
  }
  found.matrix.format = int_format(want, bits, how.stored_group, scales, zeros.info != nullptr);
  found.matrix.format.is_interleaved = codes.info->is_interleaved;
  found.matrix.data = take_plane(want, *codes.info, found.strides.data);
  found.matrix.scales = how.has_one_scale ? take_number(want, scales, found.strides.scales)
                                          : take_plane(want, *scales.info, found.strides.scales);
  if (zeros.info != nullptr)
    found.matrix.biases = take_plane(want, *zeros.info, found.strides.biases);
  const bool is_as_stored = packing == Packing::PackedRows && zeros.info == nullptr &&
                            !how.has_one_scale && found.matrix.format.group == how.stored_group;
  if (!is_as_stored) set_repack(want, found, std::move(how));
  return found;
}

// A plane of this program's containers: a byte for each zero point.
Found take_zero_bytes(const Request& want, const Named& codes, const Named& scales, int bits) {
  const Named zeros =
      need(want, want.module + ".weight_zeros", fmt::format("\"{}\" needs it", codes.name));
  need_dtype(want, zeros, {DType::U8});
  need_shape(want, zeros, want.rows, last_dimension(*zeros.info));
  Found found = take_int_rows(want, codes, scales, {}, bits, Packing::PackedRows);
  need_shape(want, zeros, want.rows, want.cols / found.matrix.format.group);
  found.matrix.format.zero = AffineZero::ZeroPoint;
  found.matrix.biases = take_plane(want, *zeros.info, found.strides.biases);
  if (found.matrix.repack != nullptr) wrong_shape(want, scales, "groups of 32, 64 or 128");
  return found;
}

Found take_packed_ints(const Request& want, const Named& codes) {
  const QuantSettings settings = settings_of(want);
  const std::int64_t dwords = last_dimension(*codes.info);
  int bits = 0;
  for (const int each : {2, 8, 4}) {
    const bool known =
        settings.bits.empty() ||
        std::find(settings.bits.begin(), settings.bits.end(), each) != settings.bits.end();
    if (known && ceil_div(want.cols * each, 32) == dwords) bits = each;
  }
  if (bits == 0) {
    wrong_shape(
        want, codes,
        fmt::format("{} packed in {} bits", shape_text(want.shape(want.rows, want.cols)),
                    settings.bits.empty() ? "2, 4 or 8"
                                          : fmt::to_string(fmt::join(settings.bits, " or "))));
  }
  need_shape(want, codes, want.rows, dwords);
  const std::string why = fmt::format("\"{}\" needs it", codes.name);
  const Named scales = need(want, want.module + ".weight_scale", why);
  if (has_sibling(want, ".weight_zeros")) return take_zero_bytes(want, codes, scales, bits);
  if (!has_sibling(want, ".weight_zero_point"))
    return take_int_rows(want, codes, scales, settings, bits, Packing::PackedRows);
  const Named zeros = need(want, want.module + ".weight_zero_point", why);
  need_dtype(want, zeros, {DType::I32, DType::U32});
  need_shape(want, zeros, ceil_div(want.rows * bits, 32),
             scales.info->shape.size() < 2 ? 1 : last_dimension(*scales.info));
  return take_int_rows(want, codes, scales, settings, bits, Packing::PackedRows, zeros);
}

}  // namespace

Found take_qweight(const Request& want) {
  const Named codes = need(want, want.module + ".qweight", "the config asks for it");
  need_dtype(want, codes, {DType::I32, DType::U32});
  const QuantSettings settings = settings_of(want);
  const bool is_awq = settings.method.empty()
                          ? has_shape(want, *codes.info, want.cols, want.rows / 8)
                          : settings.method == "awq";
  if (is_awq) return take_awq(want, codes, settings);
  if (!settings.method.empty() && settings.method != "gptq") {
    contradicts(want, codes, settings, fmt::format("the method \"{}\"", settings.method));
  }
  return take_gptq(want, codes, settings);
}

Found take_weight_packed(const Request& want) {
  const Named codes = need(want, want.module + ".weight_packed", "the config asks for it");
  const std::string why = fmt::format("\"{}\" needs it", codes.name);
  if (has_sibling(want, ".weight_shape"))
    check_weight_shape(want, need(want, want.module + ".weight_shape", why));
  if (codes.info->dtype == DType::U8) {
    const Named scales = need(want, want.module + ".weight_scale", why);
    const bool is_nvfp4 = scales.info->dtype == DType::F8E4M3;
    const Named global = is_nvfp4 ? need(want, want.module + ".weight_global_scale", why) : Named{};
    return take_fp4(want, codes, scales, global, /*divides=*/true);
  }
  need_dtype(want, codes, {DType::I32, DType::U32});
  if (has_sibling(want, ".weight_g_idx")) {
    fail(Errc::Unsupported,
         "{}: tensor \"{}.weight_g_idx\": columns in activation order are not supported; take a "
         "release without it",
         want.source.path(), want.module);
  }
  return take_packed_ints(want, codes);
}

Found take_signed(const Request& want, const Named& weight) {
  need_shape(want, weight, want.rows, want.cols);
  const std::string why = fmt::format("the I8 matrix \"{}\" needs it", weight.name);
  const Named scales = need(want, weight.name + "_scale", why);
  const std::string zeros_name = weight.name + "_zero_point";
  if (!has_tensor(want.source, zeros_name))
    return take_int_rows(want, weight, scales, settings_of(want), 8, Packing::SignedBytes);
  const Named zeros = need(want, zeros_name, why);
  need_dtype(want, zeros, {DType::I8});
  if (zeros.info->shape != scales.info->shape)
    wrong_shape(want, zeros, shape_text(scales.info->shape));
  return take_int_rows(want, weight, scales, settings_of(want), 8, Packing::SignedBytes, zeros);
}

}  // namespace moeflux::lookup
