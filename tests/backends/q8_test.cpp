// The fast path: every instruction set must reproduce the reference bit by bit, and the reference
// must be close to the exact product.
#include "backends/cpu/q8.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu_backends.h"
#include "backends/random_weight.h"
#include "base/aligned_buffer.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using cpu::KernelTable;
using cpu::Q8Layout;
using test::expect_same_bits;
using test::Random;
using test::RandomWeight;

std::vector<WeightFormat> affine_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : test::all_formats()) {
    if (format.kind == WeightKind::Affine) formats.push_back(format);
  }
  return formats;
}

TEST(Q8, TakesAffineWeightsInPanels) {
  for (const WeightFormat& format : test::all_formats()) {
    EXPECT_EQ(cpu::has_q8(arranged(format, true)), format.kind == WeightKind::Affine);
    EXPECT_FALSE(cpu::has_q8(format));
  }
}

// Rows of activations in the layout of the fast path.
class Rows {
 public:
  Rows(const cpu::Q8Kernels& kernels, const Q8Layout& layout, const std::vector<float>& x)
      : memory_(x.size() / static_cast<std::size_t>(layout.cols) *
                static_cast<std::size_t>(layout.row_bytes)) {
    std::memset(memory_.data(), 0xCC, memory_.size());
    for (std::size_t i = 0; i * static_cast<std::size_t>(layout.cols) < x.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      kernels.quantize(layout, x.data() + row * layout.cols,
                       memory_.data() + row * layout.row_bytes);
    }
  }
  const std::byte* data() const { return memory_.data(); }
  std::span<const std::byte> bytes() const { return {memory_.data(), memory_.size()}; }

 private:
  AlignedBuffer memory_;
};

std::vector<float> product(const KernelTable& table, const RandomWeight& weight,
                           const std::vector<float>& x, std::int64_t n, int digits) {
  const WeightView w = weight.panels();
  const Q8Layout layout(w.format, w.cols, digits);
  const Rows rows(*table.q8, layout, x);
  std::vector<float> y(static_cast<std::size_t>(n * w.rows), -7);
  std::vector<float> scratch(static_cast<std::size_t>(cpu::q8_scratch_floats(layout)));
  table.q8->matmul({.weight = &w,
                    .layout = &layout,
                    .row = 0,
                    .n_rows = w.rows,
                    .x = rows.data(),
                    .n = n,
                    .y = y.data(),
                    .y_stride = w.rows,
                    .rows_out = nullptr,
                    .scratch = scratch.data()});
  return y;
}

TEST(Q8, TheReferenceIsCloseToTheExactProduct) {
  Random random(1);
  for (const WeightFormat& format : affine_formats()) {
    const std::int64_t cols = test::fitting_cols(format, 300);
    const RandomWeight weight(random, format, 7, cols);
    const std::int64_t n = 2;
    const std::vector<float> x = random.floats(n * cols);
    for (const int digits : {1, 2}) {
      const std::vector<float> y = product(cpu::scalar_kernels(), weight, x, n, digits);
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t r = 0; r < 7; ++r) {
          double want = 0, magnitude = 0;
          for (std::int64_t c = 0; c < cols; ++c) {
            const double term = weight.at(r, c) * x[static_cast<std::size_t>(i * cols + c)];
            want += term;
            magnitude += term * term;
          }
          // A value is rounded by at most half a unit of the largest code of its group.
          EXPECT_NEAR(y[static_cast<std::size_t>(i * 7 + r)], want,
                      (digits == 1 ? 0.05 : 2e-4) * std::sqrt(magnitude))
              << test::format_name(format) << " digits " << digits;
        }
      }
    }
  }
}

TEST(Q8, ValuesOnTheGridAreExact) {
  Random random(2);
  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::F32};
  const RandomWeight weight(random, format, 5, 256);
  for (const int digits : {1, 2}) {
    const int largest = digits == 1 ? 127 : 127 * 256;
    std::vector<float> x(256);
    for (float& value : x) value = static_cast<float>(random.integer(-largest, largest));
    for (std::size_t g = 0; g < 4; ++g) x[g * 64] = static_cast<float>(largest);  // scales of 1
    const std::vector<float> y = product(cpu::scalar_kernels(), weight, x, 1, digits);
    for (std::int64_t r = 0; r < 5; ++r) {
      double want = 0;
      for (std::int64_t c = 0; c < 256; ++c)
        want += weight.at(r, c) * x[static_cast<std::size_t>(c)];
      EXPECT_NEAR(y[static_cast<std::size_t>(r)], want, 1e-5 * largest * 16);
    }
  }
}

class Q8Tables : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& table() const { return cpu::select_kernels(GetParam()); }
};

TEST_P(Q8Tables, RoundingIsTheReference) {
  Random random(3);
  for (const WeightFormat& format : affine_formats()) {
    for (const std::int64_t wanted : {1, 200, 1000}) {
      const std::int64_t cols = test::fitting_cols(format, wanted);
      std::vector<float> x = random.floats(cols);
      x[0] = 0.5f;                                           // ties
      if (cols > 64) std::fill_n(x.begin() + 32, 32, 0.0f);  // a group of zeros, for groups of 32
      x[static_cast<std::size_t>(cols - 1)] = 1e-42f;
      if (cols > 400) {  // a group so small that the inverse of its scale is infinite
        std::fill_n(x.begin() + 256, 128, 0.0f);
        x[256] = 1e-36f;
        x[257] = -1e-38f;
      }
      for (const int digits : {1, 2}) {
        const Q8Layout layout(format, cols, digits);
        const Rows want(cpu::q8_scalar(), layout, x), got(*table().q8, layout, x);
        EXPECT_TRUE(std::memcmp(want.data(), got.data(), want.bytes().size()) == 0)
            << test::format_name(format) << " " << cols << " digits " << digits;
      }
    }
  }
}

TEST_P(Q8Tables, ProductsAreTheReference) {
  Random random(4);
  for (const WeightFormat& format : affine_formats()) {
    for (const std::int64_t wanted : {1, 300, 1024}) {
      const std::int64_t cols = test::fitting_cols(format, wanted);
      for (const std::int64_t rows : {1, 4, 16, 35}) {
        const RandomWeight weight(random, format, rows, cols);
        for (const std::int64_t n : {1, 2, 3, 4, 7, 8, 9, 18}) {
          const std::vector<float> x = random.floats(n * cols);
          for (const int digits : {1, 2}) {
            expect_same_bits(product(cpu::scalar_kernels(), weight, x, n, digits),
                             product(table(), weight, x, n, digits),
                             fmt::format("{} {}x{} n {} digits {}", test::format_name(format), rows,
                                         cols, n, digits));
          }
        }
      }
    }
  }
}

// More rows of activations than one pass over the weights takes.
TEST_P(Q8Tables, ManyRowsAreTheReference) {
  Random random(7);
  const std::int64_t n = 131;
  const std::vector<float> x = random.floats(n * 4096);
  for (const int bits : {4, 6}) {
    const WeightFormat format{WeightKind::Affine, bits, 128, 0, DType::F16};
    const RandomWeight weight(random, format, 5, 4096);
    for (const int digits : {1, 2}) {
      expect_same_bits(product(cpu::scalar_kernels(), weight, x, n, digits),
                       product(table(), weight, x, n, digits));
    }
  }
}

TEST_P(Q8Tables, TheLargestCodesDoNotOverflow) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const std::int64_t cols = 512;
      const WeightFormat format{WeightKind::Affine, bits, group, 0, DType::F32, true};
      const std::vector<std::uint8_t> data(static_cast<std::size_t>(cols * bits / 8), 0xFF);
      const std::vector<float> ones(static_cast<std::size_t>(cols / group), 1.0f), zeros(16, 0.0f);
      const WeightView w{.format = format,
                         .rows = 1,
                         .cols = cols,
                         .data = std::as_bytes(std::span(data)).data(),
                         .scales = std::as_bytes(std::span(ones)).data(),
                         .biases = std::as_bytes(std::span(zeros)).data()};
      for (const int digits : {1, 2}) {
        for (const std::int64_t n : {1, 2, 4, 8, 20}) {
          const Q8Layout layout(format, cols, digits);
          const float largest = layout.largest_code();
          const Rows rows(*table().q8, layout,
                          std::vector<float>(static_cast<std::size_t>(n * cols), -largest));
          std::vector<float> scratch(static_cast<std::size_t>(cpu::q8_scratch_floats(layout)));
          std::vector<float> y(static_cast<std::size_t>(n));
          table().q8->matmul({.weight = &w,
                              .layout = &layout,
                              .row = 0,
                              .n_rows = 1,
                              .x = rows.data(),
                              .n = n,
                              .y = y.data(),
                              .y_stride = 1,
                              .rows_out = nullptr,
                              .scratch = scratch.data()});
          for (const float value : y) {
            EXPECT_FLOAT_EQ(value, -largest * static_cast<float>(cols * ((1 << bits) - 1)))
                << bits << " bits, groups of " << group << ", digits " << digits << ", n " << n;
          }
        }
      }
    }
  }
}

// Some panels of a matrix into scattered places.
TEST_P(Q8Tables, PartsOfAMatrixAreTheReference) {
  Random random(11);
  for (const WeightFormat& format : affine_formats()) {
    const std::int64_t cols = test::fitting_cols(format, 200), rows = 55, stride = 90;
    const RandomWeight weight(random, format, rows, cols);
    const WeightView w = weight.panels();
    for (const std::int64_t n : {2, 5}) {
      const Q8Layout layout(format, cols, 2);
      const Rows x(cpu::q8_scalar(), layout, random.floats(n * cols));
      const std::vector<std::int32_t> places{3, 0, 4, 1, 2};
      std::vector<float> scratch(static_cast<std::size_t>(cpu::q8_scratch_floats(layout)));
      const auto run = [&](const cpu::Q8Kernels& kernels) {
        std::vector<float> y(static_cast<std::size_t>(5 * stride), -7);
        kernels.matmul({.weight = &w,
                        .layout = &layout,
                        .row = 16,
                        .n_rows = n == 2 ? 32 : 39,
                        .x = x.data(),
                        .n = n,
                        .y = y.data() + 1,
                        .y_stride = stride,
                        .rows_out = places.data(),
                        .scratch = scratch.data()});
        return y;
      };
      expect_same_bits(run(cpu::q8_scalar()), run(*table().q8),
                       fmt::format("{} n {}", test::format_name(format), n));
    }
  }
}

TEST_P(Q8Tables, WhatIsNotFiniteStaysSo) {
  Random random(5);
  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const RandomWeight weight(random, format, 4, 128);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> x = random.floats(256);
    x[70] = bad;
    for (const int digits : {1, 2}) {
      const std::vector<float> y = product(table(), weight, x, 2, digits);
      for (int r = 0; r < 4; ++r) {
        EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(r)]));
        EXPECT_TRUE(std::isfinite(y[static_cast<std::size_t>(4 + r)]));  // the other row
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Q8Tables, testing::ValuesIn(test::supported_isas()));

std::unique_ptr<Backend> backend_of(const std::string& isa, int n_threads, Precision precision) {
  return make_cpu_backend({.cpu_isa = isa, .n_threads = n_threads, .precision = precision});
}

// As a backend of this precision takes it.
WeightView view_for(Precision precision, const RandomWeight& weight) {
  return wants_panels(precision) ? weight.panels() : weight.view();
}

// Root of the mean square of the difference, relative to that of `want`.
double relative_error(const std::vector<float>& want, const std::vector<float>& got) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(want[i]) - got[i], 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(RoundedBackend, FineIsNearlyExactAndFastOnlyInFeedForwards) {
  Random random(9);
  const std::int64_t d = 512, d_ff = 256, n = 5;
  const std::vector<float> x = random.floats(n * d);
  for (const WeightFormat& format : affine_formats()) {
    const RandomWeight gate(random, format, d_ff, d), up(random, format, d_ff, d),
        down(random, format, d, d_ff);
    const auto product_at = [&](Precision precision) {
      std::vector<float> y(static_cast<std::size_t>(n * d_ff));
      backend_of("", 2, precision)
          ->matmul({view_for(precision, gate), x.data(), d, n, y.data(), d_ff});
      return y;
    };
    const auto ffn_at = [&](Precision precision) {
      std::vector<float> y(static_cast<std::size_t>(n * d)),
          hidden(static_cast<std::size_t>(n * d_ff));
      backend_of("", 2, precision)
          ->ffn({view_for(precision, gate),
                 view_for(precision, up),
                 view_for(precision, down),
                 x.data(),
                 n,
                 {},
                 {},
                 hidden.data(),
                 y.data()});
      return y;
    };
    const std::string what = test::format_name(format);
    const std::vector<float> fine_product = product_at(Precision::Fine);
    EXPECT_LT(relative_error(product_at(Precision::Exact), fine_product), 5e-5) << what;
    expect_same_bits(fine_product, product_at(Precision::Fast), what);
    const std::vector<float> exact = ffn_at(Precision::Exact);
    const double fine = relative_error(exact, ffn_at(Precision::Fine));
    const double fast = relative_error(exact, ffn_at(Precision::Fast));
    EXPECT_LT(fine, 2e-4) << what;
    EXPECT_LT(fast, 5e-2) << what;
    EXPECT_GT(fast, 20 * fine) << what;
  }
}

// Whole operations: batching, threads and scattered rows change nothing.
TEST(RoundedBackend, RowsDoNotDependOnEachOther) {
  Random random(6);
  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const std::int64_t d = 192, d_ff = 128, n = 9;
  const auto width = static_cast<std::size_t>(d);
  const RandomWeight gate(random, format, d_ff, d), up(random, format, d_ff, d),
      down(random, format, d, d_ff);
  const std::vector<float> x = random.floats(n * d);
  for (const Precision precision : {Precision::Fine, Precision::Fast}) {
    std::vector<float> want;
    for (const std::string& isa : test::supported_isas()) {
      for (const int n_threads : {1, 3}) {
        const auto backend = backend_of(isa, n_threads, precision);
        std::vector<float> all(static_cast<std::size_t>(n * d)),
            hidden(static_cast<std::size_t>(n * d_ff));
        backend->ffn({gate.panels(),
                      up.panels(),
                      down.panels(),
                      x.data(),
                      n,
                      {},
                      {},
                      hidden.data(),
                      all.data()});
        if (want.empty()) want = all;
        expect_same_bits(want, all, isa);
        // Every second row, into the places of the others, in two operations at once.
        const std::vector<std::int32_t> in{0, 2, 4, 6}, out{1, 3, 5, 7};
        std::vector<float> some(static_cast<std::size_t>(n * d), -1);
        const FfnOp op{gate.panels(), up.panels(),  down.panels(), x.data(),   1,
                       {&in[0], 1},   {&out[0], 1}, hidden.data(), some.data()};
        FfnOp other = op;
        other.n = 3;
        other.rows_in = {&in[1], 3};
        other.rows_out = {&out[1], 3};
        other.hidden = hidden.data() + d_ff;
        backend->ffns(std::vector<FfnOp>{op, other});
        for (std::size_t i = 0; i < 4; ++i) {
          expect_same_bits(std::span(want).subspan(2 * i * width, width),
                           std::span(some).subspan((2 * i + 1) * width, width), isa);
          EXPECT_EQ(some[2 * i * width], -1.0f);
        }
      }
    }
  }
}

TEST(RoundedBackend, ProductsOfOneCallDoNotDependOnEachOther) {
  Random random(11);
  const std::int64_t d = 256;
  const WeightFormat four{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const WeightFormat eight{WeightKind::Affine, 8, 64, 0, DType::BF16};
  const WeightFormat plain{WeightKind::F32, 0, 0, 0, DType::F32};
  const std::vector<RandomWeight> all{{random, four, 700, d}, {random, four, 33, d},
                                      {random, eight, 1, d},  {random, four, 16, d},
                                      {random, eight, 90, d}, {random, plain, 5, d}};
  for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
    for (const int n_threads : {1, 3}) {
      for (const std::int64_t n : {1, 3, 20}) {
        const auto backend = backend_of("", n_threads, precision);
        const std::vector<float> x = random.floats(n * d), other = random.floats(n * d);
        for (const std::size_t count : {std::size_t{5}, all.size()}) {
          std::vector<std::vector<float>> alone, together;
          for (const RandomWeight& weight : all)
            alone.emplace_back(static_cast<std::size_t>(n * weight.rows()), -1.0f);
          together = alone;
          std::vector<MatmulOp> ops;
          for (std::size_t i = 0; i < count; ++i) {
            MatmulOp op{view_for(precision, all[i]),
                        i == 3 ? other.data() : x.data(),
                        d,
                        n,
                        alone[i].data(),
                        all[i].rows()};
            backend->matmul(op);
            op.y = together[i].data();
            ops.push_back(op);
          }
          backend->matmuls(ops);
          for (std::size_t i = 0; i < count; ++i) {
            expect_same_bits(alone[i], together[i],
                             fmt::format("{} of {}, n {}", i, precision_name(precision), n));
          }
        }
      }
    }
  }
}

// Which operations come in one call depends on what a cache holds: it must not change a bit, though
// shapes and formats differ, as those of a shared and a routed expert may.
TEST(RoundedBackend, OperationsOfOneCallDoNotDependOnEachOther) {
  Random random(10);
  const std::int64_t d = 128, n = 3;
  struct Ffn {
    RandomWeight gate, up, down;
  };
  const auto make = [&](const WeightFormat& format, std::int64_t d_ff) {
    return Ffn{{random, format, d_ff, d}, {random, format, d_ff, d}, {random, format, d, d_ff}};
  };
  const WeightFormat four{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const WeightFormat eight{WeightKind::Affine, 8, 32, 0, DType::F16};
  const WeightFormat plain{WeightKind::BF16, 0, 0, 0, DType::F32};
  const std::vector<Ffn> all{
      make(four, 192),
      make(four, 64),
      make(four, 64),
      make(eight, 64),
      make(plain, 64),
      make(four, 64),
      {{random, four, 64, d}, {random, eight, 64, d}, {random, four, d, 64}}};
  const std::vector<float> x = random.floats(n * d);
  for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
    const auto backend = backend_of("", 2, precision);
    std::vector<std::vector<float>> alone, together;
    std::vector<std::vector<float>> hidden(all.size(), std::vector<float>(n * 192));
    std::vector<FfnOp> ops;
    alone.assign(all.size(), std::vector<float>(static_cast<std::size_t>(n * d)));
    together = alone;
    for (std::size_t i = 0; i < all.size(); ++i) {
      FfnOp op{view_for(precision, all[i].gate),
               view_for(precision, all[i].up),
               view_for(precision, all[i].down),
               x.data(),
               n,
               {},
               {},
               hidden[i].data(),
               alone[i].data()};
      backend->ffn(op);
      op.y = together[i].data();
      ops.push_back(op);
    }
    backend->ffns(ops);
    for (std::size_t i = 0; i < all.size(); ++i) {
      expect_same_bits(alone[i], together[i],
                       fmt::format("{} of {}", i, precision_name(precision)));
    }
  }
}

// Memory for rows of activations is bounded: many are taken in parts, and no bit changes.
TEST(RoundedBackend, LongFeedForwardsAreTakenInParts) {
  Random random(11);
  const std::int64_t d = 64, d_ff = 96, n = 4500, at_once = 100;
  const WeightFormat format{WeightKind::Affine, 4, 32, 0, DType::BF16};
  const RandomWeight gate(random, format, d_ff, d), up(random, format, d_ff, d),
      down(random, format, d, d_ff);
  const std::vector<float> x = random.floats(n * d);
  std::vector<std::int32_t> in(n), out(n);
  for (std::int64_t i = 0; i < n; ++i) {
    in[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7 % n);
    out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(n - 1 - i);
  }
  for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
    for (const bool lists : {false, true}) {
      const auto backend = backend_of("", 2, precision);
      std::vector<float> hidden(n * d_ff), want(n * d), got(n * d);
      const auto run = [&](std::int64_t first, std::int64_t count, float* y) {
        const auto at = static_cast<std::size_t>(first);
        FfnOp op{.gate = view_for(precision, gate),
                 .up = view_for(precision, up),
                 .down = view_for(precision, down),
                 .x = x.data(),
                 .n = count,
                 .rows_in = {},
                 .rows_out = {},
                 .hidden = hidden.data(),
                 .y = y};
        if (lists) {
          op.rows_in = std::span(in).subspan(at, static_cast<std::size_t>(count));
          op.rows_out = std::span(out).subspan(at, static_cast<std::size_t>(count));
        } else {
          op.x += first * d;
          op.y += first * d;
        }
        backend->ffn(op);
      };
      for (std::int64_t first = 0; first < n; first += at_once) run(first, at_once, want.data());
      run(0, n, got.data());
      expect_same_bits(want, got, fmt::format("{}, {}", precision_name(precision), lists));
      EXPECT_LE(
          backend->scratch_bytes(),
          cpu_scratch_bytes(
              {.matmul_values = 0, .cols = d_ff, .d_model = d, .ffn_rows = n, .d_ff = d_ff}, 2));
    }
  }
}

}  // namespace
}  // namespace moeflux
