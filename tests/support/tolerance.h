// How close is close enough, in one place, and the comparisons that use it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace moeflux::test {

// One operation in f32 against the same in double; sums have up to a few thousand terms.
inline constexpr double kKernelTolerance = 3e-6;
// A row of a whole model's values against those of the reference implementation, itself in f32.
inline constexpr double kGoldenTolerance = 3e-5;
// The same with activations rounded to 16 bits.
inline constexpr double kFineTolerance = 1e-3;

enum class NumberKind { Finite, Nan, PlusInfinity, MinusInfinity };

inline NumberKind number_kind(double x) {
  if (std::isnan(x)) return NumberKind::Nan;
  if (std::isinf(x)) return x > 0 ? NumberKind::PlusInfinity : NumberKind::MinusInfinity;
  return NumberKind::Finite;
}

// Cosine, largest difference and the places of NaN and infinity must all agree. The largest
// difference is measured against the largest value of the reference, at least 0.1.
inline void expect_close(std::span<const float> ours, std::span<const double> reference,
                         double tolerance = kKernelTolerance, const std::string& what = "") {
  ASSERT_EQ(ours.size(), reference.size()) << what;
  double largest = 0.1, worst = 0, product = 0, ours_square = 0, reference_square = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i], b = reference[i];
    ASSERT_EQ(number_kind(a), number_kind(b))
        << what << ": [" << i << "] " << a << " against " << b;
    if (number_kind(b) != NumberKind::Finite) continue;
    largest = std::max(largest, std::abs(b));
    if (std::abs(a - b) > worst) {
      worst = std::abs(a - b);
      worst_at = i;
    }
    product += a * b;
    ours_square += a * a;
    reference_square += b * b;
  }
  EXPECT_LE(worst, tolerance * largest)
      << what << ": [" << worst_at << "] " << ours[worst_at] << " against " << reference[worst_at];
  if (reference_square > 1e-6) {
    EXPECT_GE(product / std::sqrt(ours_square * reference_square), 1 - tolerance) << what;
  }
}

// The very same bits, NaN included.
inline void expect_same_bits(std::span<const float> a, std::span<const float> b,
                             const std::string& what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << what << ": [" << i << "] " << a[i] << " is not " << b[i];
  }
}

}  // namespace moeflux::test
