#include "base/dtype.h"

#include <array>
#include <utility>

namespace moeflux {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 14> kNames{{
    {DType::F32, "F32"},
    {DType::F16, "F16"},
    {DType::BF16, "BF16"},
    {DType::F8E4M3, "F8_E4M3"},
    {DType::F8E5M2, "F8_E5M2"},
    {DType::I8, "I8"},
    {DType::U8, "U8"},
    {DType::I16, "I16"},
    {DType::U16, "U16"},
    {DType::I32, "I32"},
    {DType::U32, "U32"},
    {DType::I64, "I64"},
    {DType::U64, "U64"},
    {DType::Bool, "BOOL"},
}};

}  // namespace

std::string_view dtype_name(DType type) {
  for (const auto& [value, name] : kNames) {
    if (value == type) return name;
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  if (name == "F8_E8M0") return DType::U8;  // exponents alone, which other writers call U8
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

}  // namespace moeflux
