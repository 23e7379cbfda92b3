// Operations with rounded activations: how close they are, and that nothing but an operation itself
// decides its bits: not its neighbours in a call, not the threads, not the parts it is taken in.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "backends/random_weight.h"
#include "support/operands.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;
using test::operand;
using test::Random;
using test::RandomWeight;
using test::tiled_formats;

std::unique_ptr<Backend> backend_of(const std::string& isa, int n_threads, Precision precision) {
  return make_backend({.isa = isa, .n_threads = n_threads, .precision = precision});
}

// As a backend of this precision takes it.
Weight operand_for(Precision precision, const RandomWeight& weight) {
  return operand(precision == Precision::Exact ? weight.view() : weight.interleaved());
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
  for (const WeightFormat& format : tiled_formats()) {
    const RandomWeight gate(random, format, d_ff, d), up(random, format, d_ff, d),
        down(random, format, d, d_ff);
    const auto product_at = [&](Precision precision) {
      std::vector<float> y(static_cast<std::size_t>(n * d_ff));
      backend_of("", 2, precision)
          ->matmul(
              {.weight = operand_for(precision, gate), .x = operand(x, n), .y = operand(y, n)});
      return y;
    };
    const auto ffn_at = [&](Precision precision) {
      std::vector<float> y(static_cast<std::size_t>(n * d)),
          hidden(static_cast<std::size_t>(n * d_ff));
      backend_of("", 2, precision)
          ->ffn({.gate = operand_for(precision, gate),
                 .up = operand_for(precision, up),
                 .down = operand_for(precision, down),
                 .x = operand(x, n),
                 .hidden = operand(hidden, n),
                 .y = operand(y, n)});
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
        const FfnOp whole{.gate = operand(gate.interleaved()),
                          .up = operand(up.interleaved()),
                          .down = operand(down.interleaved()),
                          .x = operand(x, n),
                          .hidden = operand(hidden, n),
                          .y = operand(all, n)};
        backend->ffn(whole);
        if (want.empty()) want = all;
        expect_same_bits(want, all, isa);
        // Every second row, into the places of the others, in two operations at once.
        const std::vector<std::int32_t> in{0, 2, 4, 6}, out{1, 3, 5, 7};
        std::vector<float> some(static_cast<std::size_t>(n * d), -1);
        FfnOp op = whole, other = whole;
        op.y = other.y = operand(some, n);
        op.rows_in = operand(in).col_range(0, 1);
        op.rows_out = operand(out).col_range(0, 1);
        op.hidden = operand(hidden, n).row_range(0, 1);
        other.rows_in = operand(in).col_range(1, 3);
        other.rows_out = operand(out).col_range(1, 3);
        other.hidden = operand(hidden, n).row_range(1, 3);
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
            MatmulOp op{.weight = operand_for(precision, all[i]),
                        .x = operand(i == 3 ? other : x, n),
                        .y = operand(alone[i], n)};
            backend->matmul(op);
            op.y = operand(together[i], n);
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
      FfnOp op{.gate = operand_for(precision, all[i].gate),
               .up = operand_for(precision, all[i].up),
               .down = operand_for(precision, all[i].down),
               .x = operand(x, n),
               .hidden = operand(hidden[i].data(), n, all[i].gate.rows()),
               .y = operand(alone[i], n)};
      backend->ffn(op);
      op.y = operand(together[i], n);
      ops.push_back(op);
    }
    backend->ffns(ops);
    for (std::size_t i = 0; i < all.size(); ++i) {
      expect_same_bits(alone[i], together[i],
                       fmt::format("{} of {}", i, precision_name(precision)));
    }
  }
}

// Matrices of a feed-forward need not have the same format, and some may not be quantized at all.
TEST(RoundedBackend, FeedForwardsOfMixedFormatsAreAsClose) {
  Random random(12);
  const std::int64_t d = 128, d_ff = 64, n = 70;
  const WeightFormat three{WeightKind::Affine, 3, 64, 0, DType::BF16};
  const WeightFormat eight{WeightKind::Affine, 8, 32, 0, DType::F16};
  const WeightFormat plain{WeightKind::BF16, 0, 0, 0, DType::F32};
  const std::vector<float> x = random.floats(n * d);
  std::vector<std::int32_t> in(n), out(n);
  for (std::int64_t i = 0; i < n; ++i) {
    in[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 3 % n);
    out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(n - 1 - i);
  }
  for (const auto& [gate_format, up_format, down_format] : {std::tuple{three, eight, three},
                                                            {three, three, plain},
                                                            {plain, three, three},
                                                            {plain, plain, eight}}) {
    const RandomWeight gate(random, gate_format, d_ff, d), up(random, up_format, d_ff, d),
        down(random, down_format, d, d_ff);
    const auto ffn_of = [&](const std::string& isa, Precision precision, bool lists) {
      std::vector<float> y(n * d), hidden(n * d_ff);
      FfnOp op{.gate = operand_for(precision, gate),
               .up = operand_for(precision, up),
               .down = operand_for(precision, down),
               .x = operand(x, n),
               .hidden = operand(hidden, n),
               .y = operand(y, n)};
      if (lists) op.rows_in = operand(in), op.rows_out = operand(out);
      backend_of(isa, 2, precision)->ffn(op);
      return y;
    };
    for (const bool lists : {false, true}) {
      const std::vector<float> exact = ffn_of("scalar", Precision::Exact, lists);
      const std::vector<float> fine = ffn_of("scalar", Precision::Fine, lists);
      EXPECT_LT(relative_error(exact, fine), 2e-4);
      for (const std::string& isa : test::supported_isas())
        expect_same_bits(fine, ffn_of(isa, Precision::Fine, lists), isa);
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
      const auto run = [&](std::int64_t first, std::int64_t count, std::vector<float>& y) {
        FfnOp op{.gate = operand_for(precision, gate),
                 .up = operand_for(precision, up),
                 .down = operand_for(precision, down),
                 .x = operand(x, n),
                 .hidden = operand(hidden.data(), count, d_ff),
                 .y = operand(y, n)};
        if (lists) {
          op.rows_in = operand(in).col_range(first, count);
          op.rows_out = operand(out).col_range(first, count);
        } else {
          op.x = op.x.row_range(first, count);
          op.y = op.y.row_range(first, count);
        }
        backend->ffn(op);
      };
      for (std::int64_t first = 0; first < n; first += at_once) run(first, at_once, want);
      run(0, n, got);
      expect_same_bits(want, got, fmt::format("{}, {}", precision_name(precision), lists));
      EXPECT_LE(
          backend->scratch_bytes(),
          find_backend().scratch_needed(
              {.matmul_values = 0, .cols = d_ff, .d_model = d, .ffn_rows = n, .d_ff = d_ff}, 2));
    }
  }
}

}  // namespace
}  // namespace moeflux
