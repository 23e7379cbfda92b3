// What instructions this processor has and the operating system lets us use. Probed once.
#pragma once

#include <string>

namespace moeflux {

struct CpuFeatures {
  bool avx2 =
      false;  // with FMA, F16C and BMI2, which every processor with AVX2 that we care for has
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  bool neon = false;     // of 64-bit Arm
  bool dotprod = false;  // its products of bytes
};

const CpuFeatures& cpu_features();

std::string describe(const CpuFeatures& features);  // "avx2 avx512 avx512_vnni"
std::string cpu_model_name();                       // "" when the system does not say

}  // namespace moeflux
