#include "engine/measure/measure_kernels.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/aligned_buffer.h"

namespace moeflux {
namespace {

constexpr std::int64_t kRows = 4096;  // of one product, like a large projection

// Matrices of kRows rows that lie one after the other, filled with numbers of moderate size.
class Matrices {
 public:
  Matrices(const WeightFormat& format, std::int64_t cols, std::size_t bytes)
      : data_bytes_(kRows * data_row_bytes(format, cols)),
        plane_bytes_(kRows * scales_per_row(format, cols) *
                     static_cast<std::int64_t>(dtype_size(format.scale_dtype))),
        count_(std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / each())),
        memory_(static_cast<std::size_t>(count_ * each())) {
    view_ = {.format = format, .rows = kRows, .cols = cols};
    std::byte* first = memory_.data();
    for (std::int64_t i = 0; i < data_bytes_; ++i)
      first[i] = static_cast<std::byte>(i * 7919 >> 3 & 0x3F);  // no NaN in any float format
    const std::uint32_t one = std::bit_cast<std::uint32_t>(0.01f);
    const std::int64_t size = format.scale_dtype == DType::F32 ? 4 : 2;
    const std::uint32_t stored = size == 4 ? one : one >> 16;
    for (std::int64_t i = 0; i < 2 * plane_bytes_; i += size)
      std::memcpy(first + data_bytes_ + i, &stored, static_cast<std::size_t>(size));
    for (std::int64_t i = 1; i < count_; ++i)
      std::memcpy(first + i * each(), first, static_cast<std::size_t>(each()));
  }

  std::int64_t each() const { return data_bytes_ + 2 * plane_bytes_; }
  std::int64_t count() const { return count_; }
  const WeightView& at(std::int64_t i) {
    view_.data = memory_.data() + i * each();
    view_.scales = view_.data + data_bytes_;
    view_.biases = view_.scales + plane_bytes_;
    return view_;
  }

 private:
  std::int64_t data_bytes_, plane_bytes_, count_;
  HugeBuffer memory_;
  WeightView view_;
};

}  // namespace

double measure_kernels(Backend& backend, const WeightFormat& format, std::int64_t cols,
                       const KernelMeasureOptions& options) {
  if (cols <= 0) return 0;
  Matrices matrices(format, cols, options.bytes);
  const std::vector<float> x(static_cast<std::size_t>(cols), 0.5f);
  std::vector<float> y(kRows);
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0, bytes = 0;
  do {
    for (std::int64_t i = 0; i < matrices.count(); ++i)
      backend.matmul({matrices.at(i), x.data(), cols, 1, y.data(), kRows});
    bytes += static_cast<double>(matrices.count() * matrices.each());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (seconds < options.seconds);
  return bytes / seconds;
}

}  // namespace moeflux
