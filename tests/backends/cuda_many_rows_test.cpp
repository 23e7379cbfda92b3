// Products of many rows on the emulated GPU, against values worked out in double precision.
#include <cmath>
#include <cstring>
#include <optional>

#include <gtest/gtest.h>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda_support.h"
#include "backends/random_weight.h"
#include "support/cuda/emulated_driver.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::large_driver;
using test::Random;
using test::RandomWeight;

struct Tolerances {
  double exact = 2e-6, fine = 4e-5, fast = 6e-4;
  // Where weights are opened in registers, offsets and scales that are no bfloats are rounded.
  double fine_ffn = 4.5e-4;
};

class Gpu {
 public:
  explicit Gpu(Precision precision, const cuda::Driver& driver = test::cuda_test_driver())
      : backend(cuda::make_backend({.n_threads = 1, .precision = precision}, driver)),
        tolerance(precision == Precision::Exact  ? Tolerances{}.exact
                  : precision == Precision::Fine ? Tolerances{}.fine
                                                 : Tolerances{}.fast),
        ffn_tolerance(precision == Precision::Fine ? Tolerances{}.fine_ffn : 2 * tolerance) {}

  View floats(std::int64_t rows, std::int64_t cols, const std::vector<float>& values) {
    return upload(rows, cols, values, ElementType::F32);
  }
  View ints(std::int64_t rows, std::int64_t cols, const std::vector<std::int32_t>& values) {
    return upload(rows, cols, values, ElementType::I32);
  }
  View zeros(std::int64_t rows, std::int64_t cols) {
    return floats(rows, cols, std::vector<float>(static_cast<std::size_t>(rows * cols)));
  }
  std::vector<float> read(const View& view) {
    std::vector<float> values(static_cast<std::size_t>(view.bytes().size / kElementBytes));
    backend->download(view.bytes(), std::as_writable_bytes(std::span(values)));
    backend->wait_for_all();
    return values;
  }
  const Buffer* bytes(const std::vector<std::byte>& values) {
    buffers_.push_back(backend->allocate(values.size(), MemoryKind::Device));
    backend->upload(values, whole(*buffers_.back()));
    return buffers_.back().get();
  }

  std::unique_ptr<Backend> backend;
  double tolerance;
  double ffn_tolerance;  // of two products

 private:
  template <class T>
  View upload(std::int64_t rows, std::int64_t cols, const std::vector<T>& values,
              ElementType type) {
    const auto raw = std::as_bytes(std::span(values));
    return {bytes({raw.begin(), raw.end()}), 0, rows, cols, cols, type};
  }
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Appends the planes of a matrix, at multiples of 16 or odd places.
Weight place(std::vector<std::byte>& memory, const WeightView& view, bool is_aligned) {
  const auto append = [&](const std::byte* plane, std::int64_t bytes) {
    if (plane == nullptr) return Weight::kNoPlane;
    memory.resize((memory.size() + 15) / 16 * 16 + (is_aligned ? 0 : 1));
    memory.insert(memory.end(), plane, plane + bytes);
    return static_cast<std::uint64_t>(memory.size()) - static_cast<std::uint64_t>(bytes);
  };
  Weight w;
  w.format = view.format;
  w.rows = view.rows;
  w.cols = view.cols;
  w.block_row0 = view.block_row0;
  w.data = append(view.data, view.rows * data_row_bytes(view.format, view.cols));
  w.scales = append(view.scales, scale_bytes(view.format, view.rows, view.cols, view.block_row0));
  w.biases = append(view.biases, bias_bytes(view.format, view.rows, view.cols));
  return w;
}
Weight place(Gpu& gpu, const RandomWeight& weight, bool is_aligned) {
  std::vector<std::byte> memory;
  Weight w = place(memory, weight.view(), is_aligned);
  w.buffer = gpu.bytes(memory);
  return w;
}

double dot(const RandomWeight& w, std::int64_t row, const float* x) {
  double sum = 0;
  for (std::int64_t c = 0; c < w.cols(); ++c) sum += w.at(row, c) * x[c];
  return sum;
}

double activated(const FfnActivation& a, double gate, double up) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  if (a.kind == FfnActivation::Kind::Silu) return gate * sigmoid(gate) * up;
  if (a.kind == FfnActivation::Kind::Gelu)
    return 0.5 * gate *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
  const double x = std::min(gate, double{a.limit});
  return x * sigmoid(a.alpha * x) * (std::min(std::max(up, -double{a.limit}), double{a.limit}) + 1);
}

// ||a - b|| / ||b||
class Difference {
 public:
  void add(double value, double truth) {
    off_ += (value - truth) * (value - truth);
    all_ += truth * truth;
    if (!std::isfinite(value)) off_ = INFINITY;
  }
  double relative() const { return std::sqrt(off_ / all_); }

 private:
  double off_ = 0, all_ = 0;
};

struct Shape {
  std::int64_t n, rows, cols;
};

double matmul_difference(Gpu& gpu, const WeightFormat& format, const Shape& shape, bool is_aligned,
                         std::uint64_t seed) {
  Random random(seed);
  const RandomWeight weight(random, format, shape.rows, shape.cols);
  const std::int64_t gap = random.integer(0, 3);  // between rows
  const auto values = random.floats(shape.n * (shape.cols + gap), 3);
  const auto bias = random.floats(shape.rows);
  View x = gpu.floats(shape.n, shape.cols + gap, values);
  x.cols = shape.cols;
  View y = gpu.zeros(shape.n, shape.rows + gap);
  y.cols = shape.rows;
  gpu.backend->matmul({.weight = place(gpu, weight, is_aligned),
                       .bias = gpu.floats(1, shape.rows, bias),
                       .x = x,
                       .y = y});
  const auto out = gpu.read(y);
  Difference difference;
  for (std::int64_t i = 0; i < shape.n; ++i) {
    for (std::int64_t r = 0; r < shape.rows; ++r)
      difference.add(
          out[static_cast<std::size_t>(i * y.stride + r)],
          dot(weight, r, values.data() + i * x.stride) + bias[static_cast<std::size_t>(r)]);
  }
  return difference.relative();
}

class ManyRows : public testing::TestWithParam<WeightFormat> {};

TEST_P(ManyRows, ProductsAreThoseOfTheValues) {
  const WeightFormat format = GetParam();
  std::uint64_t seed = 1;
  for (const Precision precision : {Precision::Exact, Precision::Fine}) {
    Gpu gpu(precision);
    for (const Shape& shape :
         {Shape{9, 5, 32}, Shape{33, 70, 96}, Shape{64, 129, 160}, Shape{140, 20, 256}}) {
      for (const bool is_aligned : {true, false}) {
        const Shape own{shape.n, shape.rows, test::fitting_cols(format, shape.cols)};
        EXPECT_LT(matmul_difference(gpu, format, own, is_aligned, ++seed), gpu.tolerance)
            << own.n << " x " << own.rows << " x " << own.cols << (is_aligned ? "" : ", odd places")
            << (precision == Precision::Exact ? ", exact" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ManyRows, testing::ValuesIn(test::cuda_formats()),
                         [](const auto& one) { return test::format_name(one.param); });

const WeightFormat kFourBits{
    .kind = WeightKind::Affine, .bits = 4, .group = 64, .scale_dtype = DType::BF16};

// Odd groups of columns, and numbers of columns that fill no whole tile.
TEST(ManyRowsOfOddShapes, ProductsAreThoseOfTheValues) {
  std::uint64_t seed = 100;
  for (const Precision precision : {Precision::Exact, Precision::Fine}) {
    Gpu gpu(precision);
    for (const auto& [bits, group, cols] :
         {std::tuple{4, 24, 72}, {8, 4, 20}, {3, 96, 96}, {4, 40, 40}}) {
      const WeightFormat format{
          .kind = WeightKind::Affine, .bits = bits, .group = group, .scale_dtype = DType::F16};
      EXPECT_LT(matmul_difference(gpu, format, {17, 33, cols}, true, ++seed), gpu.tolerance)
          << bits << " bits in groups of " << group;
    }
    for (const int cols : {1, 7, 65})
      EXPECT_LT(matmul_difference(gpu, {.kind = WeightKind::BF16}, {300, 3, cols}, true, ++seed),
                gpu.tolerance)
          << cols;
  }
}

// Several tiles of rows and columns, and more groups than are opened at a time.
TEST(ManyRowsOfOddShapes, LongRowsOfFourBits) {
  for (const Precision precision : {Precision::Fine, Precision::Fast}) {
    Gpu gpu(precision);
    EXPECT_LT(matmul_difference(gpu, kFourBits, {140, 264, 2176}, true, 130),
              precision == Precision::Fine ? 3e-4 : gpu.tolerance);
    EXPECT_LT(matmul_difference(gpu, kFourBits, {9, 8, 2048 + 128}, false, 131),
              precision == Precision::Fine ? 3e-4 : gpu.tolerance);
  }
}

// So many that weights are opened before.
TEST(VeryManyRows, ProductsAreThoseOfTheValues) {
  std::uint64_t seed = 150;
  for (const auto& [driver, precision] : {std::pair(&test::cuda_test_driver(), Precision::Fine),
                                          {&large_driver(), Precision::Fine},
                                          {&large_driver(), Precision::Fast}}) {
    Gpu gpu(precision, *driver);
    for (const WeightFormat& format :
         {kFourBits, WeightFormat{.kind = WeightKind::F32},
          WeightFormat{.kind = WeightKind::Fp8Block, .block = 32, .scale_dtype = DType::BF16},
          WeightFormat{
              .kind = WeightKind::Affine, .bits = 4, .group = 24, .scale_dtype = DType::F16}})
      EXPECT_LT(matmul_difference(gpu, format, {550, 70, test::fitting_cols(format, 150)},
                                  format.group == 0, ++seed),
                gpu.tolerance)
          << describe(format);
  }
}

// However many rows there are, and whatever the other rows hold.
TEST(VeryManyRows, ARowIsTheSameAlone) {
  constexpr std::int64_t kRows = 600, kCols = 192, kOut = 300;
  Random random(160);
  const RandomWeight weight(random, kFourBits, kOut, kCols);
  auto x = random.floats(kRows * kCols);
  const double sizes[] = {1, 1e30, 1e-30, 1e-38, 0, INFINITY, NAN};
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] *= static_cast<float>(sizes[i / kCols % std::size(sizes)]);
  Gpu gpu(Precision::Fine);
  const View all = gpu.floats(kRows, kCols, x), y = gpu.zeros(kRows, kOut);
  const Weight w = place(gpu, weight, true);
  gpu.backend->matmul({.weight = w, .x = all, .y = y});
  const auto together = gpu.read(y);
  const View some = gpu.zeros(20, kOut);
  for (std::int64_t first = 0; first < 40; first += 20) {
    gpu.backend->matmul({.weight = w, .x = all.row_range(first, 20), .y = some});
    const auto apart = gpu.read(some);
    for (std::int64_t i = 0; i < 20; ++i) {
      const double size = sizes[static_cast<std::size_t>(first + i) % std::size(sizes)];
      for (std::int64_t r = 0; r < kOut; ++r) {
        const float a = apart[static_cast<std::size_t>(i * kOut + r)];
        const float b = together[static_cast<std::size_t>((first + i) * kOut + r)];
        if (!std::isfinite(size)) {
          EXPECT_FALSE(std::isfinite(a)) << i;
        } else {
          ASSERT_EQ(a, b) << first + i << ", " << r;
        }
      }
    }
  }
  Difference difference[std::size(sizes)];
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t r = 0; r < kOut; ++r)
      difference[static_cast<std::size_t>(i) % std::size(sizes)].add(
          together[static_cast<std::size_t>(i * kOut + r)], dot(weight, r, x.data() + i * kCols));
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(difference[i].relative(), 5e-4) << sizes[i];
}

struct Ffn {
  Ffn(Random& random, const WeightFormat& format, const WeightFormat& of_up, std::int64_t d,
      std::int64_t d_ff)
      : gate(random, format, d_ff, d), up(random, of_up, d_ff, d), down(random, format, d, d_ff) {
    gate_bias = random.floats(d_ff);
    up_bias = random.floats(d_ff);
    down_bias = random.floats(d);
  }
  std::vector<double> operator()(const FfnActivation& activation, const float* x) const {
    std::vector<double> out(static_cast<std::size_t>(down.rows()));
    std::vector<double> hidden;
    for (std::int64_t r = 0; r < gate.rows(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      hidden.push_back(
          activated(activation, dot(gate, r, x) + gate_bias[at], dot(up, r, x) + up_bias[at]));
    }
    for (std::int64_t r = 0; r < down.rows(); ++r) {
      double& sum = out[static_cast<std::size_t>(r)] = down_bias[static_cast<std::size_t>(r)];
      for (std::int64_t c = 0; c < down.cols(); ++c)
        sum += down.at(r, c) * hidden[static_cast<std::size_t>(c)];
    }
    return out;
  }
  RandomWeight gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

const FfnActivation kActivations[] = {
    {.kind = FfnActivation::Kind::Silu},
    {.kind = FfnActivation::Kind::Gelu},
    {.kind = FfnActivation::Kind::ClampedSwiglu, .alpha = 1.702f, .limit = 2}};

class ManyRowsOfFfn : public testing::TestWithParam<WeightFormat> {};

TEST_P(ManyRowsOfFfn, FeedForwardsAreThoseOfTheValues) {
  std::uint64_t seed = 200;
  for (const Precision precision : {Precision::Exact, Precision::Fine}) {
    Gpu gpu(precision);
    for (const bool has_lists : {false, true}) {
      Random random(++seed);
      const WeightFormat up = seed % 2 == 0 ? GetParam() : WeightFormat{.kind = WeightKind::F32};
      const std::int64_t n = 11, of_x = 20, d = test::fitting_cols(GetParam(), 64),
                         d_ff = test::fitting_cols(GetParam(), 96);
      const Ffn ffn(random, GetParam(), up, d, d_ff);
      const FfnActivation& activation = kActivations[seed % 3];
      const auto x = random.floats(of_x * d);
      std::vector<std::int32_t> from, to;
      for (std::int32_t i = 0; i < n; ++i) {
        from.push_back(static_cast<std::int32_t>(random.integer(0, of_x - 1)));
        to.push_back(2 * (static_cast<std::int32_t>(n) - 1 - i));
      }
      const View all = gpu.floats(of_x, d, x), y = gpu.zeros(2 * n, d);
      gpu.backend->ffn({.gate = place(gpu, ffn.gate, true),
                        .up = place(gpu, ffn.up, true),
                        .down = place(gpu, ffn.down, true),
                        .gate_bias = gpu.floats(1, d_ff, ffn.gate_bias),
                        .up_bias = gpu.floats(1, d_ff, ffn.up_bias),
                        .down_bias = gpu.floats(1, d, ffn.down_bias),
                        .activation = activation,
                        .x = has_lists ? all : all.row_range(0, n),
                        .rows_in = has_lists ? gpu.ints(1, n, from) : View{},
                        .rows_out = has_lists ? gpu.ints(1, n, to) : View{},
                        .hidden = gpu.zeros(n, d_ff),
                        .y = y});
      const auto out = gpu.read(y);
      Difference difference;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto truth = ffn(activation, x.data() + (has_lists ? from[at] : i) * d);
        const std::int64_t row = has_lists ? to[at] : i;
        for (std::int64_t c = 0; c < d; ++c)
          difference.add(out[static_cast<std::size_t>(row * d + c)],
                         truth[static_cast<std::size_t>(c)]);
      }
      EXPECT_LT(difference.relative(), gpu.ffn_tolerance)
          << (has_lists ? "with lists" : "") << (precision == Precision::Exact ? ", exact" : "");
    }
  }
}

TEST(VeryManyRows, FeedForwardsAreThoseOfTheValues) {
  Random random(250);
  constexpr std::int64_t kN = 520, kD = 64, kHidden = 160;
  Gpu gpu(Precision::Fine);
  const Ffn ffn(random, {.kind = WeightKind::F16},
                {.kind = WeightKind::Affine, .bits = 8, .group = 32, .scale_dtype = DType::BF16},
                kD, kHidden);
  const auto x = random.floats(kN * kD);
  const View y = gpu.zeros(kN, kD);
  gpu.backend->ffn({.gate = place(gpu, ffn.gate, true),
                    .up = place(gpu, ffn.up, true),
                    .down = place(gpu, ffn.down, true),
                    .gate_bias = gpu.floats(1, kHidden, ffn.gate_bias),
                    .up_bias = gpu.floats(1, kHidden, ffn.up_bias),
                    .down_bias = gpu.floats(1, kD, ffn.down_bias),
                    .activation = kActivations[0],
                    .x = gpu.floats(kN, kD, x),
                    .hidden = gpu.zeros(kN, kHidden),
                    .y = y});
  const auto out = gpu.read(y);
  Difference difference;
  for (std::int64_t i = 0; i < kN; ++i) {
    const auto truth = ffn(kActivations[0], x.data() + i * kD);
    for (std::int64_t c = 0; c < kD; ++c)
      difference.add(out[static_cast<std::size_t>(i * kD + c)], truth[static_cast<std::size_t>(c)]);
  }
  EXPECT_LT(difference.relative(), gpu.ffn_tolerance);
}

INSTANTIATE_TEST_SUITE_P(Formats, ManyRowsOfFfn, testing::ValuesIn(test::cuda_formats()),
                         [](const auto& one) { return test::format_name(one.param); });

// What was rounded for one product serves the next one, but never after x has changed.
TEST(ManyRowsAgain, ProductsFollowTheirInput) {
  Random random(400);
  constexpr std::int64_t kN = 16, kCols = 64, kOut = 24;
  Gpu gpu(Precision::Fine);
  const RandomWeight first(random, kFourBits, kOut, kCols);
  const RandomWeight second(random, {.kind = WeightKind::F16}, kOut, kCols);
  const Weight weights[] = {place(gpu, first, true), place(gpu, second, true)};
  const auto a = random.floats(kN * kCols), b = random.floats(kN * kCols);
  const View x = gpu.floats(kN, kCols, a), other = gpu.floats(kN, kCols, b);
  View y[4];
  for (View& each : y) each = gpu.zeros(kN, kOut);
  gpu.backend->matmul({.weight = weights[0], .x = x, .y = y[0]});
  gpu.backend->matmul({.weight = weights[1], .x = x, .y = y[1]});
  gpu.backend->copy(other.bytes(), x.bytes());
  gpu.backend->matmul({.weight = weights[0], .x = x, .y = y[2]});
  gpu.backend->wait_for_all();
  gpu.backend->upload(std::as_bytes(std::span(a)), x.bytes());
  gpu.backend->matmul({.weight = weights[0], .x = x, .y = y[3]});
  const RandomWeight* used[] = {&first, &second, &first, &first};
  for (std::size_t k = 0; k < 4; ++k) {
    const auto out = gpu.read(y[k]);
    Difference difference;
    for (std::int64_t i = 0; i < kN; ++i) {
      for (std::int64_t r = 0; r < kOut; ++r)
        difference.add(out[static_cast<std::size_t>(i * kOut + r)],
                       dot(*used[k], r, (k == 2 ? b : a).data() + i * kCols));
    }
    EXPECT_LT(difference.relative(), gpu.tolerance) << k;
  }
}

struct Chosen {
  const char* name;
  std::int64_t n, n_experts, top_k;
  std::int32_t absent;  // an expert that is not there; -1: none
  // Of a slot of a row.
  std::int32_t (*choose)(Random& random, std::int64_t row, std::int64_t slot,
                         std::int64_t n_experts);
};

class ManyRowsOfExperts : public testing::TestWithParam<Chosen> {};

TEST_P(ManyRowsOfExperts, ExpertsAreThoseOfTheValues) {
  const Chosen& chosen = GetParam();
  std::uint64_t seed = 300;
  struct Layer {
    WeightFormat format;
    std::int64_t d, d_expert;
  };
  const auto four_bits = [](int group, DType scales, AffineZero zero) {
    return WeightFormat{
        .kind = WeightKind::Affine, .bits = 4, .group = group, .scale_dtype = scales, .zero = zero};
  };
  for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
    Gpu gpu(precision);
    for (const auto& [format, d, d_expert] :
         {Layer{kFourBits, 64, 128},
          Layer{{.kind = WeightKind::Fp4, .group = 32, .scale_dtype = DType::U8}, 64, 128},
          Layer{kFourBits, 512, 192}, Layer{four_bits(32, DType::F16, AffineZero::Bias), 1280, 96},
          Layer{four_bits(32, DType::BF16, AffineZero::ZeroPoint), 256, 160},
          Layer{four_bits(128, DType::F32, AffineZero::MidCode), 256, 384}}) {
      if (precision == Precision::Exact && d > 64) continue;
      Random random(++seed);
      std::vector<Ffn> experts;
      std::vector<std::byte> slots;
      std::vector<ExpertPlace> places;
      std::vector<float> biases[3];
      ExpertTable table;
      for (std::int64_t e = 0; e < chosen.n_experts; ++e) {
        const Ffn& ffn = experts.emplace_back(random, format, format, d, d_expert);
        ExpertPlace& own = places.emplace_back();
        const RandomWeight* matrices[] = {&ffn.gate, &ffn.up, &ffn.down};
        Weight* shapes[] = {&table.gate, &table.up, &table.down};
        for (std::size_t m = 0; m < 3; ++m) {
          const Weight w = place(slots, matrices[m]->view(), e != 1);
          own.matrices[m] = {w.data, w.scales, w.biases};
          *shapes[m] = w;
          shapes[m]->data = shapes[m]->scales = shapes[m]->biases = Weight::kNoPlane;
        }
        biases[0].insert(biases[0].end(), ffn.gate_bias.begin(), ffn.gate_bias.end());
        biases[1].insert(biases[1].end(), ffn.up_bias.begin(), ffn.up_bias.end());
        biases[2].insert(biases[2].end(), ffn.down_bias.begin(), ffn.down_bias.end());
      }
      table.slots = gpu.bytes(slots);
      if (chosen.absent >= 0) places[static_cast<std::size_t>(chosen.absent)] = {};
      const auto raw = std::as_bytes(std::span(places));
      const std::vector<std::byte> words(raw.begin(), raw.end());
      auto memory = gpu.backend->allocate(words.size(), MemoryKind::Pinned);
      std::memcpy(memory->host(), words.data(), words.size());
      table.places = whole(*memory);

      MoeSpec spec;
      spec.n_experts = static_cast<int>(chosen.n_experts);
      spec.top_k = static_cast<int>(chosen.top_k);
      spec.d_expert = static_cast<int>(d_expert);
      spec.activation = kActivations[seed % 3];
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < chosen.n; ++i) {
        for (std::int64_t s = 0; s < chosen.top_k; ++s)
          ids.push_back(chosen.choose(random, i, s, chosen.n_experts));
      }
      const auto x = random.floats(chosen.n * d);
      const std::int64_t n_pairs = chosen.n * chosen.top_k;
      const View out = gpu.zeros(n_pairs, d);
      gpu.backend->experts({.spec = &spec,
                            .bank = 0,
                            .h = gpu.floats(chosen.n, d, x),
                            .ids = gpu.ints(chosen.n, chosen.top_k, ids),
                            .table = table,
                            .mailbox = {},
                            .gate_bias = gpu.floats(chosen.n_experts, d_expert, biases[0]),
                            .up_bias = gpu.floats(chosen.n_experts, d_expert, biases[1]),
                            .down_bias = gpu.floats(chosen.n_experts, d, biases[2]),
                            .hidden = gpu.zeros(n_pairs, d_expert),
                            .out = out});
      const auto values = gpu.read(out);
      Difference difference;
      for (std::int64_t i = 0; i < n_pairs; ++i) {
        const std::int32_t expert = ids[static_cast<std::size_t>(i)];
        if (expert == chosen.absent) {  // nothing is written
          ASSERT_EQ(values[static_cast<std::size_t>(i * d)], 0);
          continue;
        }
        const Ffn& ffn = experts[static_cast<std::size_t>(expert)];
        const auto truth = ffn(spec.activation, x.data() + i / chosen.top_k * d);
        for (std::int64_t c = 0; c < d; ++c)
          difference.add(values[static_cast<std::size_t>(i * d + c)],
                         truth[static_cast<std::size_t>(c)]);
      }
      const double one_half = 6e-4;  // those of four bits take one half in fine, too
      EXPECT_LT(difference.relative(),
                precision == Precision::Exact ? gpu.ffn_tolerance : 2 * one_half)
          << precision_name(precision);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Choices, ManyRowsOfExperts,
    testing::Values(Chosen{"any", 20, 5, 3, -1,
                           [](Random& random, std::int64_t, std::int64_t, std::int64_t n) {
                             return static_cast<std::int32_t>(random.integer(0, n - 1));
                           }},
                    Chosen{"one_is_absent", 20, 5, 3, 3,
                           [](Random& random, std::int64_t, std::int64_t, std::int64_t n) {
                             return static_cast<std::int32_t>(random.integer(0, n - 1));
                           }},
                    Chosen{"one_has_all", 150, 3, 1, -1,
                           [](Random&, std::int64_t, std::int64_t, std::int64_t) { return 2; }},
                    Chosen{
                        "most_have_none", 40, 40, 2, -1,
                        [](Random&, std::int64_t row, std::int64_t slot, std::int64_t) {
                          return static_cast<std::int32_t>(slot == 0 ? 0 : row % 3 == 0 ? 39 : 33);
                        }}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace moeflux
