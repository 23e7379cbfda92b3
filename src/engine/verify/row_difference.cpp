#include "engine/verify/row_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr double kTiny = 1e-30;  // keeps a row of zeros from dividing by zero

double nan_is_far(double x) {
  return std::isnan(x) ? std::numeric_limits<double>::infinity() : x;
}

RowDifference compare_row(std::span<const float> ours, std::span<const float> golden) {
  double difference = 0, ours_square = 0, golden_square = 0, product = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i], b = golden[i];
    difference += (a - b) * (a - b);
    ours_square += a * a;
    golden_square += b * b;
    product += a * b;
  }
  const double norm = std::max(std::sqrt(golden_square), kTiny);
  const double row_scale =
      std::min(norm / std::sqrt(static_cast<double>(ours.size())), kMaxRowScale);
  RowDifference row{
      .relative = nan_is_far(std::sqrt(difference) / norm),
      .cosine = product / std::max(std::sqrt(ours_square) * norm, kTiny),
  };
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double apart = nan_is_far(std::abs(double{ours[i]} - double{golden[i]}));
    const double scale = std::max(row_scale, std::abs(double{golden[i]}) / 2);
    row.max_abs = std::max(row.max_abs, apart);
    row.value = std::max(row.value, nan_is_far(apart / scale));
  }
  return row;
}

}  // namespace

RowDifference compare_rows(std::span<const float> ours, std::span<const float> golden,
                           std::int64_t width) {
  const auto n = static_cast<std::size_t>(width);
  MOEFLUX_ASSERT(ours.size() == golden.size() && ours.size() % n == 0);
  RowDifference worst;
  for (std::size_t begin = 0; begin < ours.size(); begin += n) {
    const RowDifference row = compare_row(ours.subspan(begin, n), golden.subspan(begin, n));
    if (std::max(row.relative, row.value) > std::max(worst.relative, worst.value))
      worst.row = static_cast<std::int64_t>(begin / n);
    worst.relative = std::max(worst.relative, row.relative);
    worst.value = std::max(worst.value, row.value);
    worst.cosine = std::min(worst.cosine, row.cosine);
    worst.max_abs = std::max(worst.max_abs, row.max_abs);
  }
  return worst;
}

}  // namespace moeflux
