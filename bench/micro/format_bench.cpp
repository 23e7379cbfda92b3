// Speed of products with weights of several formats, beside affine 4-bit ones in groups of 64, on
// one thread.
//
//   format_bench [ISA...] [-- FORMAT...]
//
// A round times one product of each format after the other, so that what else the machine does hits
// all alike. All weights lie in the same memory. With one row of activations they come from memory,
// or (near) from a cache. Columns: the least time, and from it bytes and operations per second; the
// median over the rounds of the time per weight, and of that per byte, to those of the first format
// in the same round; the least time it takes to round the activations.
#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backends/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "random_floats.h"

namespace moeflux {
namespace {

using cpu::KernelTable;
using cpu::RoundedLayout;

constexpr std::size_t kFarBytes = std::size_t{256} << 20;  // much more than a last-level cache

struct NamedFormat {
  const char* name;
  WeightFormat format;
};

WeightFormat affine(int group, AffineZero zero, DType scales) {
  return {.kind = WeightKind::Affine,
          .bits = 4,
          .group = group,
          .scale_dtype = scales,
          .is_interleaved = true,
          .zero = zero};
}

WeightFormat blocks(BlockType type) {
  return {.kind = WeightKind::Block, .is_interleaved = true, .blocks = type};
}

const NamedFormat kFormats[] = {
    {"affine g64", affine(64, AffineZero::Bias, DType::BF16)},
    {"zero points g128", affine(128, AffineZero::ZeroPoint, DType::F16)},
    {"int4 g32", affine(32, AffineZero::MidCode, DType::BF16)},
    {"mxfp4",
     {.kind = WeightKind::Fp4, .group = 32, .scale_dtype = DType::U8, .is_interleaved = true}},
    {"nvfp4",
     {.kind = WeightKind::Fp4,
      .group = 16,
      .scale_dtype = DType::F8E4M3,
      .is_interleaved = true,
      .has_tensor_scale = true}},
    {"q4_0", blocks(BlockType::Q4_0)},
    {"q8_0", blocks(BlockType::Q8_0)},
    {"q5_0", blocks(BlockType::Q5_0)},
    {"q2_k", blocks(BlockType::Q2_K)},
    {"q3_k", blocks(BlockType::Q3_K)},
    {"q4_k", blocks(BlockType::Q4_K)},
    {"q5_k", blocks(BlockType::Q5_K)},
    {"q6_k", blocks(BlockType::Q6_K)},
    {"iq4_xs", blocks(BlockType::IQ4_XS)},
    {"iq4_nl", blocks(BlockType::IQ4_NL)},
    {"ggml mxfp4", blocks(BlockType::MXFP4)},
    {"ggml nvfp4", blocks(BlockType::NVFP4)},
    {"iq3_s", blocks(BlockType::IQ3_S)},
    {"iq3_xxs", blocks(BlockType::IQ3_XXS)},
    {"iq2_s", blocks(BlockType::IQ2_S)},
    {"iq2_xs", blocks(BlockType::IQ2_XS)},
    {"iq2_xxs", blocks(BlockType::IQ2_XXS)},
    {"iq1_s", blocks(BlockType::IQ1_S)},
    {"iq1_m", blocks(BlockType::IQ1_M)},
    {"tq1_0", blocks(BlockType::TQ1_0)},
    {"tq2_0", blocks(BlockType::TQ2_0)},
};

std::vector<NamedFormat> chosen;  // the first, and those asked for

std::int64_t column_step(const WeightFormat& format) {
  return format.kind == WeightKind::Block ? block_shape(format.blocks).values : format.group;
}

struct Shape {
  std::int64_t rows, cols;
};
constexpr Shape kShapes[] = {{2880, 2880}, {768, 2048}};
constexpr Shape kManyShapes[] = {{384, 2880}, {384, 2048}};  // some rows of them: short rounds

// Time of this thread, whatever else runs.
double processor_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

// Codes of all formats, since any will do: what pages memory is made of is the same for all. As
// halves or exponents any two bytes are numbers of a moderate size.
const HugeBuffer& codes() {
  static const HugeBuffer kCodes = [] {
    HugeBuffer codes(kFarBytes);
    std::mt19937_64 random(2);
    constexpr std::size_t kSome = std::size_t{1} << 20;
    for (std::size_t i = 0; i < kSome; ++i)
      codes.data()[i] = static_cast<std::byte>((random() & 0x1F) | 0x20);
    for (std::size_t i = kSome; i < kFarBytes; i += kSome)
      std::memcpy(codes.data() + i, codes.data(), kSome);
    return codes;
  }();
  return kCodes;
}

// A matrix that is next to others in memory, with what its products take. Part: of the memory,
// where it begins.
class Product {
 public:
  Product(const WeightFormat& format, const Shape& shape, int digits, std::int64_t n, bool far,
          double part)
      : cols_(shape.cols - shape.cols % column_step(format)),
        layout_(format, cols_, digits),
        view_{.format = format, .rows = shape.rows, .cols = cols_},
        n_(n),
        data_bytes_(shape.rows * data_row_bytes(format, cols_)),
        scale_bytes_(shape.rows * scales_per_row(format, cols_) *
                     static_cast<std::int64_t>(dtype_size(format.scale_dtype))),
        bytes_(data_bytes_ + scale_bytes_ + bias_bytes(format, shape.rows, cols_)),
        stride_(shape.rows * shape.cols / 16 * 17),  // of the largest
        count_(far ? static_cast<std::int64_t>(kFarBytes) / stride_ : 1),
        next_(static_cast<std::int64_t>(part * static_cast<double>(count_))),
        planes_(static_cast<std::size_t>(count_ * (bytes_ - data_bytes_))),
        x_(random_floats(n * cols_)),
        rounded_(static_cast<std::size_t>(n * layout_.row_bytes)),
        y_(static_cast<std::size_t>(n * shape.rows)),
        scratch_(static_cast<std::size_t>(cpu::rounded_scratch_floats(layout_))) {
    fill();
  }

  std::int64_t bytes() const { return bytes_; }
  double least() const { return least_; }
  // Of every round: time per weight.
  const std::vector<double>& times() const { return times_; }
  double weights() const { return static_cast<double>(view_.rows * cols_); }
  double least_rounding() const { return least_rounding_; }

  void run(const cpu::RoundedKernels& kernels) {
    view_.data = codes().data() + next_ * stride_;
    view_.scales = planes_.data() + next_ * (bytes_ - data_bytes_);
    view_.biases = view_.scales + scale_bytes_;
    next_ = (next_ + 1) % count_;
    const double begin = processor_us();
    for (std::int64_t i = 0; i < n_; ++i) {
      kernels.quantize(layout_, x_.data() + i * cols_, rounded_.data() + i * layout_.row_bytes);
    }
    const double start = processor_us();
    least_rounding_ = std::min(least_rounding_, start - begin);
    kernels.matmul({.weight = &view_,
                    .layout = &layout_,
                    .row = 0,
                    .n_rows = view_.rows,
                    .x = rounded_.data(),
                    .n = n_,
                    .y = y_.data(),
                    .y_stride = view_.rows,
                    .rows_out = nullptr,
                    .scratch = scratch_.data()});
    const double time = processor_us() - start;
    least_ = std::min(least_, time);
    times_.push_back(time / weights());
  }

 private:
  // Scales and biases are of a model's size.
  void fill() {
    const DType dtype = view_.format.scale_dtype;
    const std::uint32_t scale = dtype == DType::BF16     ? 0x3C23
                                : dtype == DType::F16    ? 0x211F
                                : dtype == DType::F8E4M3 ? 0x52
                                                         : 120;
    std::byte* at = planes_.data();
    const auto fill_plane = [&](std::int64_t bytes, std::uint32_t bits, std::size_t size) {
      for (std::byte* end = at + bytes; at < end; at += size) std::memcpy(at, &bits, size);
    };
    for (std::int64_t i = 0; i < count_; ++i) {
      fill_plane(scale_bytes_, scale, dtype_size(dtype));
      const std::int64_t bytes = bytes_ - data_bytes_ - scale_bytes_;
      if (view_.format.kind == WeightKind::Fp4) {
        fill_plane(bytes, std::bit_cast<std::uint32_t>(0.001f), 4);
      } else if (view_.format.zero == AffineZero::ZeroPoint) {
        fill_plane(bytes, 8, 1);
      } else {
        fill_plane(bytes, scale, dtype_size(dtype));
      }
    }
  }

  std::int64_t cols_;
  RoundedLayout layout_;
  WeightView view_;
  std::int64_t n_, data_bytes_, scale_bytes_, bytes_, stride_, count_, next_;
  HugeBuffer planes_;
  std::vector<float> x_;
  AlignedBuffer rounded_;
  std::vector<float> y_;
  std::vector<float> scratch_;
  double least_ = 1e30, least_rounding_ = 1e30;
  std::vector<double> times_;
};

// Of the times of a format to those of another, round by round.
double median_ratio(const std::vector<double>& times, const std::vector<double>& others) {
  std::vector<double> ratios(times.size());
  std::transform(times.begin(), times.end(), others.begin(), ratios.begin(), std::divides<>());
  const auto middle = ratios.begin() + std::ssize(ratios) / 2;
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

void compare(const KernelTable& table, const Shape& shape, int digits, std::int64_t n, bool far) {
  std::vector<std::unique_ptr<Product>> products;
  for (const auto& [name, format] : chosen) {
    const double part = static_cast<double>(products.size()) / static_cast<double>(chosen.size());
    products.push_back(std::make_unique<Product>(format, shape, digits, n, far, part));
  }
  const int rounds = n == 1 ? 400 : 60;
  for (int round = 0; round < rounds; ++round) {
    for (const auto& product : products) product->run(*table.rounded);
  }
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product &one = *products[i], &first = *products[0];
    const auto bytes = static_cast<double>(one.bytes());
    const double ratio = median_ratio(one.times(), first.times());
    const double of_bytes =
        bytes / one.weights() / (static_cast<double>(first.bytes()) / first.weights());
    fmt::print(
        "{:11} {:4} {:>4}x{:<4} n{:<3}{:5} {:17} {:8.1f} us {:6.1f} GB/s {:6.1f} GOP/s  {:5.3f} "
        "{:5.3f} {:6.1f} us\n",
        table.name, digits == 1 ? "fast" : "fine", shape.rows, shape.cols, n,
        n > 1 ? ""
        : far ? "far"
              : "near",
        chosen[i].name, one.least(), bytes / one.least() / 1e3,
        2e-3 * one.weights() * static_cast<double>(n) / one.least(), ratio, ratio / of_bytes,
        one.least_rounding());
  }
}

void compare_all(const KernelTable& table) {
  for (const int digits : {2, 1}) {
    for (const Shape& shape : kShapes) {
      compare(table, shape, digits, 1, /*far=*/true);
      compare(table, shape, digits, 1, /*far=*/false);
    }
    for (const Shape& shape : kManyShapes) compare(table, shape, digits, 64, /*far=*/false);
  }
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  using namespace moeflux;
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const auto end = std::find(arguments.begin(), arguments.end(), "--");
    for (const NamedFormat& format : kFormats) {
      if (chosen.empty() || arguments.end() - end < 2 ||
          std::find(end, arguments.end(), format.name) != arguments.end())
        chosen.push_back(format);
    }
    for (auto isa = arguments.begin(); isa != end; ++isa) compare_all(cpu::select_kernels(*isa));
    if (arguments.begin() != end) return 0;
    for (const cpu::KernelTable* table : cpu::supported_kernels()) {
      if (table != &cpu::scalar_kernels()) compare_all(*table);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
