#include "support/stored_formats.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace moeflux::test {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::array<std::string_view, 26> kFormats{
    "bf16",        "gptq2",          "gptq4",      "gptq4-v2",     "gptq8",        "awq",
    "ct-int4",     "ct-int4-asym",   "ct-int8",    "ct-int8-asym", "ct-int4-row",  "int8-row",
    "int8-tensor", "int8-row-asym",  "fp8-tensor", "fp8-row",      "fp8-block",    "fp8-e8m0",
    "nvfp4-ct",    "nvfp4-modelopt", "mxfp4-ct",   "mxfp4-v4",     "mxfp4-blocks", "mlx-mxfp4",
    "mlx-nvfp4",   "mlx-mxfp8"};

std::int64_t up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// ---- numbers

double half_value(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double mantissa = bits & 1023;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

double e4m3_value(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15);
  const double mantissa = bits & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return bits & 128 ? -size : size;
}

double e2m1_value(unsigned code) {
  constexpr std::array kSizes{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return code & 8 ? -kSizes[code & 7] : kSizes[code & 7];
}

// Numbers as a tensor holds them.
struct Numbers {
  DType dtype = DType::F32;
  std::string bytes;
  std::vector<double> values;

  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  template <class T>
  void add(T bits, double value) {
    bytes.append(std::string_view(reinterpret_cast<const char*>(&bits), sizeof bits));
    values.push_back(value);
  }
};

Numbers make_scales(Random& random, DType dtype, std::int64_t n) {
  Numbers scales{.dtype = dtype, .bytes = {}, .values = {}};
  for (std::int64_t i = 0; i < n; ++i) {
    if (dtype == DType::F32) {
      const float value = random.between(0.001, 0.1);
      scales.add(std::bit_cast<std::uint32_t>(value), value);
    } else if (dtype == DType::F16) {
      const auto bits = static_cast<std::uint16_t>(random.integer(5 << 10, 12 << 10));
      scales.add(bits, half_value(bits));
    } else if (dtype == DType::BF16) {
      const auto bits = static_cast<std::uint16_t>(random.integer(118 << 7, 124 << 7));
      scales.add(bits, std::bit_cast<float>(std::uint32_t{bits} << 16));
    } else if (dtype == DType::F8E4M3) {
      const auto bits = static_cast<std::uint8_t>(random.integer(1, 120));
      scales.add(bits, e4m3_value(bits));
    } else {  // E8M0
      const auto bits = static_cast<std::uint8_t>(random.integer(115, 126));
      scales.add(bits, std::ldexp(1.0, bits - 127));
    }
  }
  return scales;
}

// ---- codes

using Codes = std::vector<unsigned>;

Codes make_codes(Random& random, std::int64_t n, unsigned last) {
  Codes codes(static_cast<std::size_t>(n));
  for (unsigned& code : codes) code = static_cast<unsigned>(random.integer(0, last));
  return codes;
}

// A matrix [rows, cols] of codes packed into dwords along its columns, each row up to a whole one.
std::string pack_rows(std::int64_t rows, std::int64_t cols, int bits,
                      const std::function<unsigned(std::int64_t, std::int64_t)>& code) {
  const std::int64_t n = up(cols * bits, 32);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(rows * n));
  const std::int64_t per_word = 32 / bits;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c)
      words[static_cast<std::size_t>(r * n + c / per_word)] |= code(r, c) << (c % per_word * bits);
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * 4};
}

std::string bytes_of(const Codes& codes) {
  std::string bytes;
  for (const unsigned code : codes) bytes += static_cast<char>(code);
  return bytes;
}

std::string transposed_dwords(const std::string& from, std::int64_t rows, std::int64_t cols) {
  std::string to(from.size(), '\0');
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c)
      std::memcpy(&to[static_cast<std::size_t>((c * rows + r) * 4)],
                  &from[static_cast<std::size_t>((r * cols + c) * 4)], 4);
  }
  return to;
}

class Maker {
 public:
  Maker(SafetensorsWriter& out, Random& random, const std::string& module, std::int64_t rows,
        std::int64_t cols, int group)
      : out_(out), random_(random), module_(module), rows_(rows), cols_(cols), group_(group) {}

  std::vector<float> bf16() {
    const Numbers w = make_scales(random_, DType::BF16, rows_ * cols_);
    add(".weight", w.dtype, {rows_, cols_}, w.bytes);
    return values([&](std::int64_t r, std::int64_t c) { return w[r * cols_ + c]; });
  }

  std::vector<float> gptq(int bits, bool v2) {
    const std::int64_t n = up(cols_, group_);
    const Codes codes = codes_of(bits);
    const std::string rows = pack_rows(rows_, cols_, bits, [&](auto r, auto c) {
      return codes[static_cast<std::size_t>(r * cols_ + c)];
    });
    add(".qweight", DType::I32, {cols_ * bits / 32, rows_},
        transposed_dwords(rows, rows_, cols_ * bits / 32));
    const Codes zeros = make_codes(random_, n * rows_, (1u << bits) - 1);
    add(".qzeros", DType::I32, {n, up(rows_ * bits, 32)},
        pack_rows(n, rows_, bits,
                  [&](auto g, auto r) { return zeros[static_cast<std::size_t>(g * rows_ + r)]; }));
    const Numbers scales = make_scales(random_, DType::F16, n * rows_);
    add(".scales", scales.dtype, {n, rows_}, scales.bytes);
    std::string order;
    for (std::int64_t c = 0; c < cols_; ++c) {
      const auto g = static_cast<std::int32_t>(c / group_);
      order.append(std::string_view(reinterpret_cast<const char*>(&g), 4));
    }
    add(".g_idx", DType::I32, {cols_}, order);
    return values([&](std::int64_t r, std::int64_t c) {
      const std::int64_t at = c / group_ * rows_ + r;
      const int zero = static_cast<int>(zeros[static_cast<std::size_t>(at)]) + (v2 ? 0 : 1);
      return scales[at] * (static_cast<int>(codes[static_cast<std::size_t>(r * cols_ + c)]) - zero);
    });
  }

  std::vector<float> awq() {
    // Column j of eight lies in the nibble that this has in place j.
    constexpr std::array kNibble{0, 4, 1, 5, 2, 6, 3, 7};
    const std::int64_t n = up(cols_, group_);
    const Codes codes = codes_of(4), zeros = make_codes(random_, n * rows_, 15);
    const auto pack = [&](std::int64_t lines, const auto& code) {
      std::vector<std::uint32_t> words(static_cast<std::size_t>(lines * rows_ / 8));
      for (std::int64_t line = 0; line < lines; ++line) {
        for (std::int64_t r = 0; r < rows_; ++r)
          words[static_cast<std::size_t>(line * rows_ / 8 + r / 8)] |=
              code(line, r) << (4 * kNibble[static_cast<std::size_t>(r % 8)]);
      }
      return std::string(reinterpret_cast<const char*>(words.data()), words.size() * 4);
    };
    add(".qweight", DType::I32, {cols_, rows_ / 8}, pack(cols_, [&](auto c, auto r) {
          return codes[static_cast<std::size_t>(r * cols_ + c)];
        }));
    add(".qzeros", DType::I32, {n, rows_ / 8},
        pack(n, [&](auto g, auto r) { return zeros[static_cast<std::size_t>(g * rows_ + r)]; }));
    const Numbers scales = make_scales(random_, DType::F16, n * rows_);
    add(".scales", scales.dtype, {n, rows_}, scales.bytes);
    return values([&](std::int64_t r, std::int64_t c) {
      const std::int64_t at = c / group_ * rows_ + r;
      return scales[at] * (static_cast<int>(codes[static_cast<std::size_t>(r * cols_ + c)]) -
                           static_cast<int>(zeros[static_cast<std::size_t>(at)]));
    });
  }

  std::vector<float> packed_ints(int bits, bool has_zeros, bool by_row) {
    const std::int64_t group = by_row ? cols_ : group_, n = up(cols_, group);
    const Codes codes = codes_of(bits);
    add(".weight_packed", DType::I32, {rows_, up(cols_ * bits, 32)},
        pack_rows(rows_, cols_, bits,
                  [&](auto r, auto c) { return codes[static_cast<std::size_t>(r * cols_ + c)]; }));
    const Numbers scales = make_scales(random_, DType::BF16, rows_ * n);
    add(".weight_scale", scales.dtype, {rows_, n}, scales.bytes);
    const std::array<std::int64_t, 2> shape{rows_, cols_};
    add(".weight_shape", DType::I64, {2},
        std::string(reinterpret_cast<const char*>(shape.data()), sizeof shape));
    Codes zeros(static_cast<std::size_t>(rows_ * n), 1u << (bits - 1));
    if (has_zeros) {
      zeros = make_codes(random_, rows_ * n, (1u << bits) - 1);
      // Along the rows: dword k of group g holds rows k * 32 / bits and on.
      const std::string by_group = pack_rows(n, rows_, bits, [&](auto g, auto r) {
        return zeros[static_cast<std::size_t>(r * n + g)];
      });
      const std::int64_t words = up(rows_ * bits, 32);
      add(".weight_zero_point", DType::I32, {words, n}, transposed_dwords(by_group, n, words));
    }
    return values([&](std::int64_t r, std::int64_t c) {
      const std::int64_t at = r * n + c / group;
      return scales[at] * (static_cast<int>(codes[static_cast<std::size_t>(r * cols_ + c)]) -
                           static_cast<int>(zeros[static_cast<std::size_t>(at)]));
    });
  }

  std::vector<float> signed_ints(bool by_row, bool has_zeros) {
    const Codes codes = codes_of(8);
    add(".weight", DType::I8, {rows_, cols_}, bytes_of(codes));
    const std::int64_t n = by_row ? rows_ : 1;
    const Numbers scales = make_scales(random_, DType::F32, n);
    const Shape shape = by_row ? Shape{rows_, 1} : Shape{1};
    add(".weight_scale", scales.dtype, shape, scales.bytes);
    Codes zeros(static_cast<std::size_t>(n), 0);
    if (has_zeros) {
      zeros = make_codes(random_, n, 255);
      add(".weight_zero_point", DType::I8, shape, bytes_of(zeros));
    }
    const auto as_int = [](unsigned byte) { return static_cast<int>(byte ^ 128u) - 128; };
    return values([&](std::int64_t r, std::int64_t c) {
      const std::int64_t at = by_row ? r : 0;
      return scales[at] * (as_int(codes[static_cast<std::size_t>(r * cols_ + c)]) -
                           as_int(zeros[static_cast<std::size_t>(at)]));
    });
  }

  // Blocks of `block` columns and `block_rows` rows.
  std::vector<float> fp8(const char* suffix, DType dtype, std::int64_t block_rows,
                         std::int64_t block, Shape scale_shape) {
    Codes codes = codes_of(8);
    for (unsigned& code : codes)
      if ((code & 127) == 127) code ^= 1;  // no NaN
    add(".weight", DType::F8E4M3, {rows_, cols_}, bytes_of(codes));
    const std::int64_t n = up(cols_, block);
    const Numbers scales = make_scales(random_, dtype, up(rows_, block_rows) * n);
    add(suffix, dtype, std::move(scale_shape), scales.bytes);
    return values([&](std::int64_t r, std::int64_t c) {
      return scales[r / block_rows * n + c / block] *
             e4m3_value(codes[static_cast<std::size_t>(r * cols_ + c)]);
    });
  }

  enum class TensorScale { None, Factor, Divisor };
  struct Fp4 {
    const char* data;
    DType dtype;
    Shape shape;
    const char* scales;
    DType scale_dtype;
    DType scale_type_in_file;
    std::int64_t group;
    TensorScale tensor_scale = TensorScale::None;
    const char* tensor_scale_name = "";
  };
  std::vector<float> fp4(const Fp4& f) {
    const Codes codes = codes_of(4);
    add(f.data, f.dtype, f.shape, pack_rows(rows_, cols_, 4, [&](auto r, auto c) {
          return codes[static_cast<std::size_t>(r * cols_ + c)];
        }));
    const std::int64_t n = cols_ / f.group;
    const Numbers scales = make_scales(random_, f.scale_dtype, rows_ * n);
    add(f.scales, f.scale_type_in_file, {rows_, n}, scales.bytes);
    double factor = 1;
    if (f.tensor_scale != TensorScale::None) {
      const bool divides = f.tensor_scale == TensorScale::Divisor;
      const float value = divides ? random_.between(100, 900) : random_.between(0.001, 0.01);
      add(f.tensor_scale_name, DType::F32, divides ? Shape{1} : Shape{},
          std::string(reinterpret_cast<const char*>(&value), 4));
      factor = value;
    }
    return values([&](std::int64_t r, std::int64_t c) {
      const double product =
          e2m1_value(codes[static_cast<std::size_t>(r * cols_ + c)]) * scales[r * n + c / f.group];
      return f.tensor_scale == TensorScale::Divisor ? product / factor : product * factor;
    });
  }

  std::vector<float> mlx_mxfp8() {
    Codes codes = codes_of(8);
    for (unsigned& code : codes)
      if ((code & 127) == 127) code ^= 1;
    add(".weight", DType::U32, {rows_, cols_ / 4}, bytes_of(codes));
    const std::int64_t n = cols_ / 32;
    const Numbers scales = make_scales(random_, DType::U8, rows_ * n);
    add(".scales", DType::U8, {rows_, n}, scales.bytes);
    return values([&](std::int64_t r, std::int64_t c) {
      return scales[r * n + c / 32] * e4m3_value(codes[static_cast<std::size_t>(r * cols_ + c)]);
    });
  }

 private:
  Codes codes_of(int bits) { return make_codes(random_, rows_ * cols_, (1u << bits) - 1); }

  void add(const char* suffix, DType dtype, Shape shape, const std::string& bytes) {
    out_.add(module_ + suffix, dtype, std::move(shape), bytes);
  }

  // Each is rounded to a float once.
  template <class Value>
  std::vector<float> values(Value value) {
    std::vector<float> all;
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) all.push_back(static_cast<float>(value(r, c)));
    }
    return all;
  }

  SafetensorsWriter& out_;
  Random& random_;
  const std::string& module_;
  std::int64_t rows_, cols_, group_;
};

Json compressed_tensors(const char* format, int bits, const char* type, const char* strategy,
                        int group, bool symmetric) {
  Json weights{
      {"num_bits", bits}, {"type", type}, {"strategy", strategy}, {"symmetric", symmetric}};
  if (group > 0) weights["group_size"] = group;
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}}}};
}

Json gptq_config(int bits, int group, const char* format) {
  return {{"quantization_config",
           {{"quant_method", "gptq"},
            {"bits", bits},
            {"group_size", group},
            {"desc_act", false},
            {"sym", false},
            {"checkpoint_format", format}}}};
}

}  // namespace

std::span<const std::string_view> stored_formats() {
  return kFormats;
}

bool can_store(std::string_view format, std::int64_t rows, std::int64_t cols) {
  const bool is_fp4 = format.find("fp4") != format.npos || format == "mlx-mxfp8";
  if (format.find("nvfp4") != format.npos) return cols % 16 == 0;
  if (is_fp4) return cols % 32 == 0;
  if (format.starts_with("gptq")) return cols % (format == "gptq2" ? 16 : 8) == 0;
  return format != "awq" || rows % 8 == 0;
}

Json format_config(std::string_view format, int group) {
  if (format == "gptq2") return gptq_config(2, group, "gptq");
  if (format == "gptq4") return gptq_config(4, group, "gptq");
  if (format == "gptq4-v2") return gptq_config(4, group, "gptq_v2");
  if (format == "gptq8") return gptq_config(8, group, "gptq");
  if (format == "awq")
    return {{"quantization_config",
             {{"quant_method", "awq"},
              {"bits", 4},
              {"group_size", group},
              {"version", "gemm"},
              {"zero_point", true}}}};
  const bool symmetric = format.find("asym") == format.npos;
  if (format == "ct-int4-row")
    return compressed_tensors("pack-quantized", 4, "int", "channel", 0, true);
  if (format.starts_with("ct-int"))
    return compressed_tensors("pack-quantized", format[6] - '0', "int", "group", group, symmetric);
  if (format == "int8-tensor")
    return compressed_tensors("int-quantized", 8, "int", "tensor", 0, true);
  if (format.starts_with("int8-row"))
    return compressed_tensors("int-quantized", 8, "int", "channel", 0, symmetric);
  if (format == "fp8-row")
    return compressed_tensors("float-quantized", 8, "float", "channel", 0, true);
  if (format == "fp8-tensor")
    return {{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}}};
  if (format == "nvfp4-modelopt")
    return {{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}};
  if (format == "nvfp4-ct")
    return compressed_tensors("nvfp4-pack-quantized", 4, "float", "tensor_group", 16, true);
  if (format == "mxfp4-ct")
    return compressed_tensors("mxfp4-pack-quantized", 4, "float", "group", 32, true);
  if (format == "mxfp4-blocks") return {{"quantization_config", {{"quant_method", "mxfp4"}}}};
  if (format.starts_with("mlx-"))
    return {{"quantization", {{"mode", format.substr(4)}, {"group_size", group}}}};
  if (format == "bf16") return Json::object();
  return {{"quantization_config",
           {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {group, group}}}}};
}

std::vector<float> add_stored(SafetensorsWriter& out, Random& random, std::string_view format,
                              const std::string& module, std::int64_t rows, std::int64_t cols,
                              int group) {
  Maker maker(out, random, module, rows, cols, group);
  using enum Maker::TensorScale;
  const auto is = [&](std::string_view name) { return format == name; };
  if (is("bf16")) return maker.bf16();
  if (is("gptq2")) return maker.gptq(2, false);
  if (is("gptq4")) return maker.gptq(4, false);
  if (is("gptq4-v2")) return maker.gptq(4, true);
  if (is("gptq8")) return maker.gptq(8, false);
  if (is("awq")) return maker.awq();
  if (is("ct-int4")) return maker.packed_ints(4, false, false);
  if (is("ct-int4-asym")) return maker.packed_ints(4, true, false);
  if (is("ct-int8")) return maker.packed_ints(8, false, false);
  if (is("ct-int8-asym")) return maker.packed_ints(8, true, false);
  if (is("ct-int4-row")) return maker.packed_ints(4, false, true);
  if (is("int8-row")) return maker.signed_ints(true, false);
  if (is("int8-tensor")) return maker.signed_ints(false, false);
  if (is("int8-row-asym")) return maker.signed_ints(true, true);
  if (is("fp8-tensor")) return maker.fp8(".weight_scale", DType::F32, rows, cols, {});
  if (is("fp8-row")) return maker.fp8(".weight_scale", DType::BF16, 1, cols, {rows, 1});
  const Shape blocks{up(rows, group), up(cols, group)};
  if (is("fp8-block")) return maker.fp8(".weight_scale_inv", DType::F32, group, group, blocks);
  if (is("fp8-e8m0")) return maker.fp8(".scale", DType::U8, group, group, blocks);
  const Shape pairs{rows, cols / 2}, eights{rows, cols / 8};
  if (is("nvfp4-ct"))
    return maker.fp4({".weight_packed", DType::U8, pairs, ".weight_scale", DType::F8E4M3,
                      DType::F8E4M3, 16, Divisor, ".weight_global_scale"});
  if (is("nvfp4-modelopt"))
    return maker.fp4({".weight", DType::U8, pairs, ".weight_scale", DType::F8E4M3, DType::F8E4M3,
                      16, Factor, ".weight_scale_2"});
  if (is("mxfp4-ct"))
    return maker.fp4(
        {".weight_packed", DType::U8, pairs, ".weight_scale", DType::U8, DType::U8, 32});
  if (is("mxfp4-v4"))
    return maker.fp4({".weight", DType::I8, pairs, ".scale", DType::U8, DType::U8, 32});
  if (is("mxfp4-blocks"))
    return maker.fp4(
        {"_blocks", DType::U8, {rows, cols / 32, 16}, "_scales", DType::U8, DType::U8, 32});
  if (is("mlx-mxfp4"))
    return maker.fp4({".weight", DType::U32, eights, ".scales", DType::U8, DType::U8, 32});
  if (is("mlx-nvfp4"))
    return maker.fp4({".weight", DType::U32, eights, ".scales", DType::F8E4M3, DType::U8, 16});
  if (is("mlx-mxfp8")) return maker.mlx_mxfp8();
  throw std::invalid_argument("no such format: " + std::string(format));
}

}  // namespace moeflux::test
