// From a format that is known when the program runs to code that is compiled for it. Everything has
// internal linkage: each instruction set has its own.
#pragma once

#include "quant/weight_format.h"

namespace moeflux::cpu {
namespace {

// Calls visit.operator()<Bits>() for the bits of affine codes.
template <class Visit>
void with_bits(int bits, const Visit& visit) noexcept {
  switch (bits) {
    case 2:
      return visit.template operator()<2>();
    case 3:
      return visit.template operator()<3>();
    case 4:
      return visit.template operator()<4>();
    case 5:
      return visit.template operator()<5>();
    case 6:
      return visit.template operator()<6>();
    default:
      return visit.template operator()<8>();
  }
}

// Other widths of codes with zero points are rare and have no decoder.
template <class Decoders, class Visit>
bool with_zeroed(int bits, const Visit& visit) noexcept {
  if (bits != 4 && bits != 8) return false;
  bits == 4 ? visit.template operator()<typename Decoders::template OfZeroed<4>>()
            : visit.template operator()<typename Decoders::template OfZeroed<8>>();
  return true;
}

// Calls visit.operator()<Decoder>() for one of Decoders::OfFloats<Kind>, OfFp8, OfFp4,
// OfCodes<Bits> and OfZeroed<Bits>, which has codes and zero points, all of which take 16 columns
// at a time; false when there is none for this format.
template <class Decoders, class Visit>
[[maybe_unused]] bool with_decoder(const WeightFormat& format, const Visit& visit) noexcept {
  switch (format.kind) {
    case WeightKind::F32:
      visit.template operator()<typename Decoders::template OfFloats<WeightKind::F32>>();
      return true;
    case WeightKind::F16:
      visit.template operator()<typename Decoders::template OfFloats<WeightKind::F16>>();
      return true;
    case WeightKind::BF16:
      visit.template operator()<typename Decoders::template OfFloats<WeightKind::BF16>>();
      return true;
    case WeightKind::Fp8Block:
      if (format.block % 16 != 0 || format.scale_dtype == DType::U8) return false;
      visit.template operator()<typename Decoders::OfFp8>();
      return true;
    case WeightKind::Affine:
      if (format.group % 32 != 0) return false;
      if (format.zero != AffineZero::Bias) return with_zeroed<Decoders>(format.bits, visit);
      with_bits(format.bits, [&]<int Bits>() {
        visit.template operator()<typename Decoders::template OfCodes<Bits>>();
      });
      return true;
    case WeightKind::Fp4:
      visit.template operator()<typename Decoders::OfFp4>();
      return true;
    case WeightKind::Block:
      return false;
  }
  return false;
}

}  // namespace
}  // namespace moeflux::cpu
