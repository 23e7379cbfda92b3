#include "engine/measure/measure_kernels.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

namespace moeflux {
namespace {

constexpr std::int64_t kRows = 4096;  // of one product, like a large projection

// Matrices of kRows rows that lie one after the other, filled with numbers of moderate size.
class Matrices {
 public:
  Matrices(Backend& backend, const WeightFormat& format, std::int64_t cols, std::size_t bytes)
      : data_bytes_(kRows * data_row_bytes(format, cols)),
        plane_bytes_(kRows * scales_per_row(format, cols) *
                     static_cast<std::int64_t>(dtype_size(format.scale_dtype))),
        count_(std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / each())),
        memory_(backend.allocate(static_cast<std::uint64_t>(count_ * each()), MemoryKind::Device,
                                 Backing::Huge)),
        weight_{.format = backend.layout_for(format, WeightUse::Product),
                .rows = kRows,
                .cols = cols,
                .buffer = memory_.get()} {
    std::vector<std::byte> one(static_cast<std::size_t>(each()));
    for (std::int64_t i = 0; i < data_bytes_; ++i)  // no NaN in any float format
      one[static_cast<std::size_t>(i)] = static_cast<std::byte>(i * 7919 >> 3 & 0x3F);
    const std::uint32_t scale = std::bit_cast<std::uint32_t>(0.01f);
    const std::int64_t size = format.scale_dtype == DType::F32 ? 4 : 2;
    const std::uint32_t stored = size == 4 ? scale : scale >> 16;
    for (std::int64_t i = data_bytes_; i < each(); i += size)
      std::memcpy(one.data() + i, &stored, static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < count_; ++i)
      backend.upload(one, {memory_.get(), static_cast<std::uint64_t>(i * each()), one.size()});
  }

  std::int64_t each() const { return data_bytes_ + 2 * plane_bytes_; }
  std::int64_t count() const { return count_; }
  const Weight& at(std::int64_t i) {
    weight_.data = static_cast<std::uint64_t>(i * each());
    weight_.scales = weight_.data + static_cast<std::uint64_t>(data_bytes_);
    weight_.biases = weight_.scales + static_cast<std::uint64_t>(plane_bytes_);
    return weight_;
  }

 private:
  std::int64_t data_bytes_, plane_bytes_, count_;
  std::unique_ptr<Buffer> memory_;
  Weight weight_;
};

}  // namespace

double measure_kernels(Backend& backend, const WeightFormat& format, std::int64_t cols,
                       const KernelMeasureOptions& options) {
  if (cols <= 0) return 0;
  Matrices matrices(backend, format, cols, options.bytes);
  const auto activations = backend.allocate(
      static_cast<std::uint64_t>(cols + kRows) * kElementBytes, MemoryKind::Device);
  const View x{activations.get(), 0, 1, cols, cols};
  const View y{activations.get(), x.bytes().size, 1, kRows, kRows};
  const std::vector<float> halves(static_cast<std::size_t>(cols), 0.5f);
  backend.upload(std::as_bytes(std::span(halves)), x.bytes());
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0, bytes = 0;
  do {
    for (std::int64_t i = 0; i < matrices.count(); ++i)
      backend.matmul({.weight = matrices.at(i), .x = x, .y = y});
    backend.wait_for_all();
    bytes += static_cast<double>(matrices.count() * matrices.each());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (seconds < options.seconds);
  return bytes / seconds;
}

}  // namespace moeflux
