// How far two matrices are apart, judged row by row: over a whole tensor one wrong row would drown.
#pragma once

#include <cstdint>
#include <span>

namespace moeflux {

struct RowDifference {
  double relative = 0;   // |a - b| / |b| of the worst row
  double value = 0;      // |a - b| / scale of the worst value
  double cosine = 1;     // of the worst row
  double max_abs = 0;    // largest |a - b|
  std::int64_t row = 0;  // where `relative` or `value` is worst, whichever is larger
};

// What a difference of one value is measured by: the root mean square of its row, or half of the
// value itself where that is larger. The first is capped: a row with one massive activation has a
// root mean square far above its other values.
inline constexpr double kMaxRowScale = 100;

// `ours` and `golden` hold rows of `width` values. NaN counts as infinitely far.
RowDifference compare_rows(std::span<const float> ours, std::span<const float> golden,
                           std::int64_t width);

}  // namespace moeflux
