// Element types as checkpoints store them.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace moeflux {

enum class DType { F32, F16, BF16, F8E4M3, F8E5M2, I8, U8, I16, U16, I32, U32, I64, U64, Bool };

constexpr std::size_t dtype_size(DType type) {
  switch (type) {
    case DType::F8E4M3:
    case DType::F8E5M2:
    case DType::I8:
    case DType::U8:
    case DType::Bool:
      return 1;
    case DType::F16:
    case DType::BF16:
    case DType::I16:
    case DType::U16:
      return 2;
    case DType::F32:
    case DType::I32:
    case DType::U32:
      return 4;
    case DType::I64:
    case DType::U64:
      return 8;
  }
  return 0;
}

// The names safetensors uses: "F32", "BF16", "F8_E4M3", ... "F8_E8M0" is read as U8.
std::string_view dtype_name(DType type);
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace moeflux
