// exp() that gives the same bits on every machine.
//
// The C library's exp differs between versions and between CPUs (it picks FMA variants at run
// time), and one last bit can decide which token is drawn. This one is plain double arithmetic in a
// fixed order, so it depends only on IEEE rounding (and on -ffp-contract=off, which the whole
// project is built with). Loops over it vectorize.
#pragma once

#include <bit>
#include <cstdint>

namespace moeflux {

inline constexpr double kMinExponent = -64.0;

// exp(x) * 2^scale_log2 for x in [kMinExponent, 0] and scale_log2 in [0, 52], with a relative error
// below 1e-14.
inline double scaled_exp(double x, int scale_log2) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High =
      0x1.62e42fefa38p-1;  // the low 11 bits are zero: a small integer times it is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits.
  constexpr double kRound = 0x1.8p+52;
  const double shifted = x * kLog2E + kRound;
  const double k = shifted - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2

  // The Taylor series up to r^11 (the rest is below 7e-15), its even and odd powers apart: half the
  // latency.
  const double r2 = r * r;
  double even = 1.0 / 3628800.0;
  even = even * r2 + 1.0 / 40320.0;
  even = even * r2 + 1.0 / 720.0;
  even = even * r2 + 1.0 / 24.0;
  even = even * r2 + 0.5;
  even = even * r2 + 1.0;
  double odd = 1.0 / 39916800.0;
  odd = odd * r2 + 1.0 / 362880.0;
  odd = odd * r2 + 1.0 / 5040.0;
  odd = odd * r2 + 1.0 / 120.0;
  odd = odd * r2 + 1.0 / 6.0;
  odd = odd * r2 + 1.0;
  const double p = even + odd * r;

  // 2^(k + scale), built in the exponent field; the shift drops all but the low bits of `shifted`.
  const std::uint64_t exponent =
      std::bit_cast<std::uint64_t>(shifted) + static_cast<std::uint64_t>(1023 + scale_log2);
  return p * std::bit_cast<double>(exponent << 52);
}

}  // namespace moeflux
