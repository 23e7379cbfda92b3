// exp, log, sin and cos that give the same bits on every machine.
//
// Those of the C library differ between libraries, their versions and processors (they pick
// variants with fused multiply-add at run time), and one last bit can decide which expert or token
// is chosen. These are plain double arithmetic in a fixed order: they depend only on IEEE rounding,
// and on -ffp-contract=off, which the whole project is built with. Relative errors are below 1e-14:
// rounded to float, results are the nearest ones but in one case of millions. Loops over scaled_exp
// and sin_cos vectorize.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace moeflux::portable {

// exp(x) * 2^scale_log2, where the result is normal and |x| < 700.
inline double scaled_exp(double x, int scale_log2) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  // The low 11 bits are zero: a small integer times it is exact.
  constexpr double kLn2High = 0x1.62e42fefa38p-1;
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

// 0 and infinity beyond |x| = 700; NaN for NaN.
inline double exp(double x) {
  if (x > 700) return std::numeric_limits<double>::infinity();
  if (x < -700) return 0;
  return scaled_exp(x, 0);
}

// log((1 + s) / (1 - s)) for |s| < 0.18.
inline double log_of_ratio(double s) {
  const double s2 = s * s;
  double sum = 1.0 / 19;
  sum = sum * s2 + 1.0 / 17;
  sum = sum * s2 + 1.0 / 15;
  sum = sum * s2 + 1.0 / 13;
  sum = sum * s2 + 1.0 / 11;
  sum = sum * s2 + 1.0 / 9;
  sum = sum * s2 + 1.0 / 7;
  sum = sum * s2 + 1.0 / 5;
  sum = sum * s2 + 1.0 / 3;
  return 2 * s + 2 * s * s2 * sum;
}

// The natural logarithm; -infinity of 0, NaN of what is negative or NaN. Subnormal numbers count as
// 0.
inline double log(double x) {
  constexpr double kLn2High = 0x1.62e42fefa38p-1;
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  if (!(x >= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (x < std::numeric_limits<double>::min()) return -std::numeric_limits<double>::infinity();
  if (x > std::numeric_limits<double>::max()) return x;
  // x = 2^k * m with m in [sqrt(1/2), sqrt(2))
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto k = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(k) << 52));
  const auto n = static_cast<double>(k);
  return n * kLn2High + (log_of_ratio((m - 1) / (m + 1)) + n * kLn2Low);
}

// x^y for x > 0.
inline double pow(double x, double y) {
  return exp(y * log(x));
}

// log(1 + exp(x))
inline double softplus(double x) {
  if (x > 36) return x;  // the rest is below the last bit
  const double e = exp(x);
  return e < 0.4 ? log_of_ratio(e / (2 + e)) : log(1 + e);
}

inline double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

// Of a float, rounded to one.
inline float exp(float x) {
  return static_cast<float>(exp(double{x}));
}
inline float softplus(float x) {
  return static_cast<float>(softplus(double{x}));
}
inline float sigmoid(float x) {
  return static_cast<float>(sigmoid(double{x}));
}

struct SinCos {
  double sin, cos;
};

// For |x| < 2^26; absolute error below 1e-15.
inline SinCos sin_cos(double x) {
  // x = n * pi/2 + r. A third of the bits of pi/2 at a time: n times the first two is exact.
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi1 = 0x1.921fb5p+0;
  constexpr double kHalfPi2 = 0x1.110b46p-26;
  constexpr double kHalfPi3 = 0x1.1a62633145c07p-54;
  constexpr double kRound = 0x1.8p+52;
  const double shifted = x * kTwoOverPi + kRound;
  const double n = shifted - kRound;
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;  // |r| <= pi / 4

  const double r2 = r * r;
  double s = 1.0 / 355687428096000.0;
  s = s * r2 - 1.0 / 1307674368000.0;
  s = s * r2 + 1.0 / 6227020800.0;
  s = s * r2 - 1.0 / 39916800.0;
  s = s * r2 + 1.0 / 362880.0;
  s = s * r2 - 1.0 / 5040.0;
  s = s * r2 + 1.0 / 120.0;
  s = s * r2 - 1.0 / 6.0;
  s = r + r * r2 * s;
  double c = -1.0 / 6402373705728000.0;
  c = c * r2 + 1.0 / 20922789888000.0;
  c = c * r2 - 1.0 / 87178291200.0;
  c = c * r2 + 1.0 / 479001600.0;
  c = c * r2 - 1.0 / 3628800.0;
  c = c * r2 + 1.0 / 40320.0;
  c = c * r2 - 1.0 / 720.0;
  c = c * r2 + 1.0 / 24.0;
  c = c * r2 - 0.5;
  c = 1 + r2 * c;

  const auto quadrant = std::bit_cast<std::uint64_t>(shifted);
  const double sin = (quadrant & 1) != 0 ? c : s;
  const double cos = (quadrant & 1) != 0 ? s : c;
  return {(quadrant & 2) != 0 ? -sin : sin, ((quadrant + 1) & 2) != 0 ? -cos : cos};
}

}  // namespace moeflux::portable
