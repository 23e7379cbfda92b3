// What products of centered weights are multiplied by in the end, for kernels of any instruction
// set. Everything has internal linkage: each compiles it for its own registers.
#pragma once

#include <cstring>

#include "backends/cpu/rounded.h"

namespace moeflux::cpu {
namespace {

// Kernels take every byte of a scale for a number: rows with one that is NaN get a factor of NaN.
struct RowFactors {
  alignas(64) float rows[kTileRows];

  RowFactors() noexcept {
    for (float& row : rows) row = 1;
  }
  RowFactors(const RoundedMatmul& op, const RoundedTile& tile) noexcept {
    const float factor = rounded_factor(*op.weight);
    for (float& row : rows) row = factor;
    const DType dtype = op.weight->format.scale_dtype;
    if (dtype == DType::U8) mark_rows<0xFF>(tile.scales, op.layout->n_weight_groups);
    if (dtype == DType::F8E4M3) mark_rows<0x7F>(tile.scales, op.layout->n_weight_groups);
  }

 private:
#if defined(__AVX512BW__)
  static constexpr int kBytes = 64;
#elif defined(__AVX2__)
  static constexpr int kBytes = 32;
#else
  static constexpr int kBytes = 16;
#endif
  using Bytes = std::uint8_t __attribute__((vector_size(kBytes)));

  // Nan: of the bits that are not the sign, in which it is the largest number.
  template <std::uint8_t Nan>
  void mark_rows(const std::byte* scales, std::int64_t n_groups) noexcept {
    Bytes most{}, some{};
    const std::int64_t size = n_groups * kTileRows, whole = size / kBytes * kBytes;
    for (std::int64_t i = 0; i < whole; i += kBytes) {
      std::memcpy(&some, scales + i, kBytes);
      if (Nan != 0xFF) some &= Nan;
      most = some > most ? some : most;
    }
    some = Bytes{};
    std::memcpy(&some, scales + whole, static_cast<std::size_t>(size - whole));
    some &= Nan;
    most = some > most ? some : most;
    for (int i = 0; i < kBytes; ++i) {
      if (most[i] == Nan) rows[i % kTileRows] = __builtin_nanf("");
    }
  }
};

}  // namespace
}  // namespace moeflux::cpu
