// Attention of the CUDA backend on the emulated GPU, against the scalar kernels of the CPU.
#include <cmath>

#include <gtest/gtest.h>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda_support.h"
#include "backends/random_weight.h"
#include "support/cuda/emulated_driver.h"
#include "support/operands.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::Random;

// One of two backends, with operands of a test in its memory.
class AttentionSide {
 public:
  explicit AttentionSide(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  Backend& operator*() { return *backend_; }
  Backend* operator->() { return backend_.get(); }

  View floats(const std::vector<float>& values, std::int64_t rows, std::int64_t padding = 0) {
    const auto stride = static_cast<std::int64_t>(values.size()) / rows;
    return {take(values), 0, rows, stride - padding, stride};
  }
  View positions(std::int64_t first, std::int64_t n) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<std::int32_t>(first + i));
    return {take(values), 0, 1, n, n, ElementType::I32};
  }
  Weight weight(const std::vector<float>& values, std::int64_t rows) {
    return {.format = {.kind = WeightKind::F32},
            .rows = rows,
            .cols = static_cast<std::int64_t>(values.size()) / rows,
            .buffer = take(values),
            .data = 0};
  }
  KvView cache(const KvShape& shape, const std::vector<float>& rows) {
    buffers_.push_back(backend_->allocate(shape.bytes(), MemoryKind::Device));
    const KvView view{shape, buffers_.back().get()};
    const std::int64_t n =
        static_cast<std::int64_t>(rows.size()) / (std::int64_t{shape.n_heads} * shape.d);
    backend_->store_kv({.cache = view, .x = floats(rows, n), .positions = positions(0, n)});
    return view;
  }
  std::vector<float> read(const View& view) {
    std::vector<float> values(static_cast<std::size_t>(view.size()));
    backend_->download(view.bytes(), std::as_writable_bytes(std::span(values)));
    backend_->wait_for_all();
    return values;
  }

 private:
  template <class T>
  const Buffer* take(const std::vector<T>& values) {
    buffers_.push_back(backend_->allocate(values.size() * sizeof(T), MemoryKind::Device));
    backend_->upload(std::as_bytes(std::span(values)), whole(*buffers_.back()));
    return buffers_.back().get();
  }
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

AttentionSide emulated(Precision precision) {
  return AttentionSide(
      cuda::make_backend({.n_threads = 1, .precision = precision}, test::cuda_test_driver()));
}
AttentionSide scalar() {
  return AttentionSide(make_backend({.isa = "scalar", .n_threads = 1}, "cpu"));
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += std::pow(double{a[i]} - b[i], 2);
    all += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(off / all);
}

struct Grouped {
  int n_heads, n_kv_heads, d_head;
  std::int64_t n, first;
  KvType type = KvType::F32;
  bool has_gate = false, has_sinks = false;
  int window = 0;
  double size = 1;  // of queries and keys
  double key_size = 1, value_size = 1;
};

// The rows of one call.
std::vector<float> attended(AttentionSide& side, const Grouped& t, std::int64_t from,
                            std::int64_t n) {
  Random random(static_cast<std::uint64_t>(t.first * 7 + t.n_heads + t.d_head));
  const AttentionSpec spec{.n_heads = t.n_heads,
                           .n_kv_heads = t.n_kv_heads,
                           .d_head = t.d_head,
                           .has_output_gate = t.has_gate,
                           .has_sinks = t.has_sinks,
                           .window = t.window,
                           .scale = 1 / std::sqrt(static_cast<float>(t.d_head))};
  const std::int64_t q_dim = std::int64_t{t.n_heads} * spec.query_head();
  const std::int64_t kv_dim = std::int64_t{t.n_kv_heads} * t.d_head, length = t.first + t.n;
  constexpr std::int64_t kPadding = 3;
  const auto q = random.floats(t.n * (q_dim + kPadding), t.size);
  const auto k = random.floats(length * kv_dim, t.size * t.key_size),
             v = random.floats(length * kv_dim, t.value_size);
  const auto sinks = random.floats(t.n_heads, 2);
  const KvShape keys{t.type, KvLayout::Tiles, t.n_kv_heads, t.d_head, length + 5};
  const KvShape values{t.type, KvLayout::Rows, t.n_kv_heads, t.d_head, length + 5};
  const View out =
      side.floats(std::vector<float>(static_cast<std::size_t>(n * t.n_heads * t.d_head), -7.0f), n);
  side->attention({.spec = &spec,
                   .q = side.floats(q, t.n, kPadding).row_range(from, n),
                   .k = side.cache(keys, k),
                   .v = side.cache(values, v),
                   .sinks = t.has_sinks ? side.floats(sinks, 1) : View{},
                   .positions = side.positions(t.first + from, n),
                   .out = out});
  return side.read(out);
}

void expect_same(const Grouped& t, Precision precision, double tolerance) {
  AttentionSide gpu = emulated(precision), cpu = scalar();
  EXPECT_LT(difference(attended(gpu, t, 0, t.n), attended(cpu, t, 0, t.n)), tolerance)
      << t.n_heads << '/' << t.n_kv_heads << " heads of " << t.d_head << ", " << t.n
      << " tokens at " << t.first << ", cache " << kv_type_name(t.type) << ", window " << t.window;
}

constexpr double kExact = 2e-6, kHalves = 1e-3;

TEST(CudaAttention, ExactOfEveryTypeAndSize) {
  for (const KvType type : kAllKvTypes) {
    expect_same({1, 1, 1, 1, 0, type}, Precision::Exact, kExact);
    expect_same({6, 2, 24, 5, 60, type}, Precision::Exact, kExact);
    expect_same({4, 2, 64, 3, 200, type, true, true}, Precision::Exact, kExact);
    expect_same({3, 3, 45, 20, 70, type, false, true, 33}, Precision::Exact, kExact);
    expect_same({4, 1, 256, 2, 100, type, true}, Precision::Exact, kExact);
    expect_same({2, 1, 300, 2, 40, type}, Precision::Exact, kExact);
  }
}

TEST(CudaAttention, ExactWindowsAndSinks) {
  for (const int window : {1, 17, 64, 100, 5000}) {
    expect_same({4, 2, 8, 1, 300, KvType::F32, false, true, window}, Precision::Exact, kExact);
    expect_same({4, 2, 8, 30, 110, KvType::F32, true, false, window}, Precision::Exact, kExact);
  }
}

// On tensor cores, in every kind of head they take.
TEST(CudaAttention, FewTokensOfEveryTypeAndSize) {
  for (const KvType type : kAllKvTypes) {
    for (const int d : {64, 128, 256}) {
      expect_same({4, 2, d, 1, 0, type}, Precision::Fine, kHalves);
      expect_same({4, 2, d, 1, 290, type, true}, Precision::Fine, kHalves);
    }
    expect_same({40, 2, 64, 2, 200, type, false, true}, Precision::Fine, kHalves);
    expect_same({12, 2, 128, 5, 411, type, true, true}, Precision::Fine, kHalves);
    for (const int window : {1, 40, 128})
      expect_same({4, 2, 64, 3, 300, type, false, true, window}, Precision::Fine, kHalves);
    for (const int d : {16, 80, 96, 112, 160, 192, 300})
      expect_same({3, 1, d, 2, 150, type}, Precision::Fine, kHalves);
    expect_same({8, 1, 256, 16, 65, type, true}, Precision::Fine, kHalves);
  }
}

TEST(CudaAttention, ManyTokensOfEveryTypeAndSize) {
  for (const KvType type : kAllKvTypes) {
    for (const int d : {64, 128, 256})
      expect_same({4, 2, d, 20, 100, type, d == 64, d == 128}, Precision::Fine, kHalves);
    expect_same({3, 1, 45, 17, 0, type, true}, Precision::Fine, kHalves);
    expect_same({2, 2, 96, 33, 200, type, false, true, 50}, Precision::Fine, kHalves);
  }
  expect_same({2, 1, 256, 70, 3, KvType::F16, true}, Precision::Fine, kHalves);
  expect_same({8, 1, 128, 40, 70, KvType::F16}, Precision::Fine, kHalves);
  expect_same({1, 1, 300, 20, 30, KvType::F16}, Precision::Fine, kHalves);
}

TEST(CudaAttention, ManyTokensInWindows) {
  for (const int window : {1, 30, 64, 100})
    expect_same({2, 1, 64, 150, 100, KvType::F16, false, true, window}, Precision::Fine, kHalves);
}

// Copies of 64 positions at a time.
TEST(CudaAttention, ManyTokensInSegments) {
  for (const Grouped& t : {Grouped{4, 2, 64, 40, 170, KvType::Q8, true},
                           Grouped{3, 1, 80, 70, 30, KvType::BF16, false, true, 60}}) {
    AttentionSide gpu = emulated(Precision::Fine), cpu = scalar();
    static_cast<cuda::CudaBackend&>(*gpu).limit_copies(1);
    EXPECT_LT(difference(attended(gpu, t, 0, t.n), attended(cpu, t, 0, t.n)), kHalves) << t.d_head;
  }
}

TEST(CudaAttention, SharpScores) {
  for (const KvType type : kAllKvTypes) {
    for (const std::int64_t n : {2, 20}) {
      Grouped t{4, 2, 64, n, 300, type};
      t.size = 8;
      expect_same(t, Precision::Fine, 4e-3);
    }
  }
}

// Beyond the range of halves, and below it.
TEST(CudaAttention, LargeAndSmallNumbers) {
  for (const KvType type : {KvType::F32, KvType::BF16, KvType::Q8}) {
    for (const std::int64_t n : {2, 20}) {
      Grouped t{4, 2, 64, n, 100, type};
      t.size = 1e-3;
      t.key_size = 1e9;
      t.value_size = type == KvType::Q8 ? 1e5 : 1e6;
      expect_same(t, Precision::Fine, 4e-3);
      t.size = 1e3;
      t.key_size = 1e-9;
      t.value_size = 1e-3;
      expect_same(t, Precision::Fine, 4e-3);
    }
  }
}

// A row does not depend on the others of its call.
TEST(CudaAttention, RowsAreTheirOwn) {
  for (const Precision precision : {Precision::Exact, Precision::Fine}) {
    const Grouped t{8, 2, 64, 5, 300, KvType::F16};
    AttentionSide gpu = emulated(precision);
    const auto together = attended(gpu, t, 0, 5);
    for (std::int64_t i = 0; i < 5; ++i) {
      const auto alone = attended(gpu, t, i, 1);
      for (std::size_t c = 0; c < alone.size(); ++c)
        ASSERT_EQ(alone[c], together[static_cast<std::size_t>(i) * alone.size() + c]) << i;
    }
  }
}

struct Latent {
  int n_heads, kv_rank, d_nope, d_rope, d_value;
  std::int64_t n, first;
  KvType type = KvType::F32;
  bool is_turned = false;  // keys as a matrix of their own
};

// The absorbed form, then the expanded one.
std::pair<std::vector<float>, std::vector<float>> attended(AttentionSide& side, const Latent& t) {
  Random random(static_cast<std::uint64_t>(t.first * 5 + t.kv_rank));
  const MlaSpec spec{.n_heads = t.n_heads,
                     .q_rank = 0,
                     .kv_rank = t.kv_rank,
                     .d_nope = t.d_nope,
                     .d_rope = t.d_rope,
                     .d_value = t.d_value,
                     .rope = {},
                     .scale = 0.1f,
                     .latent_norm_eps = 1e-6f};
  const std::int64_t length = t.first + t.n, head_rows = t.d_nope + t.d_value;
  const auto b = random.floats(t.n_heads * head_rows * t.kv_rank, 0.3);
  const auto turned_keys = random.floats(std::int64_t{t.n_heads} * t.kv_rank * t.d_nope, 0.3);
  const auto q = random.floats(t.n * t.n_heads * spec.d_query());
  const auto rows = random.floats(length * spec.d_row());
  const Weight both = side.weight(b, t.n_heads * head_rows);
  const HeadMatrix keys =
      t.is_turned ? HeadMatrix{side.weight(turned_keys, std::int64_t{t.n_heads} * t.kv_rank),
                               t.kv_rank, 0, t.kv_rank, false}
                  : HeadMatrix{both, head_rows, 0, t.d_nope, true};
  const HeadMatrix values{both, head_rows, t.d_nope, t.d_value, false};
  const KvView kv = side.cache({t.type, KvLayout::Rows, 1, spec.d_row(), length + 3}, rows);
  const View positions = side.positions(t.first, t.n), query = side.floats(q, t.n);
  const auto zeros = [&](std::int64_t cols) {
    return side.floats(std::vector<float>(static_cast<std::size_t>(t.n * cols), -7.0f), t.n);
  };
  const std::int64_t wide = std::int64_t{t.n_heads} * t.kv_rank;
  const View q_latent = zeros(wide), latents = zeros(wide);
  const View out = zeros(std::int64_t{t.n_heads} * t.d_value), expanded = zeros(out.cols);
  side->head_matmul({keys, t.n_heads, query, spec.d_query(), q_latent, t.kv_rank});
  side->latent_attention({.spec = &spec,
                          .q_latent = q_latent,
                          .q = query,
                          .kv = kv,
                          .positions = positions,
                          .out = latents});
  side->head_matmul({values, t.n_heads, latents, t.kv_rank, out, t.d_value});
  side->expanded_attention({.spec = &spec,
                            .keys = keys,
                            .values = values,
                            .q = query,
                            .kv = kv,
                            .positions = positions,
                            .out = expanded});
  return {side.read(out), side.read(expanded)};
}

void expect_same(const Latent& t, Precision precision, double tolerance,
                 std::size_t copies_bytes = 1 << 20) {
  AttentionSide gpu = emulated(precision), cpu = scalar();
  static_cast<cuda::CudaBackend&>(*gpu).limit_copies(copies_bytes);
  const auto got = attended(gpu, t), want = attended(cpu, t);
  EXPECT_LT(difference(got.first, want.first), tolerance)
      << t.n_heads << " heads of " << t.kv_rank << ", " << t.n << " tokens at " << t.first
      << ", cache " << kv_type_name(t.type);
  EXPECT_LT(difference(got.second, want.second), tolerance)
      << "expanded: " << t.n_heads << " heads of " << t.kv_rank << ", " << t.n << " tokens at "
      << t.first << ", cache " << kv_type_name(t.type);
}

TEST(CudaLatentAttention, ExactOfEveryType) {
  for (const KvType type : kAllKvTypes) {
    expect_same({1, 1, 1, 2, 1, 1, 0, type}, Precision::Exact, 1e-5);
    expect_same({3, 40, 24, 12, 20, 4, 60, type}, Precision::Exact, 1e-5);
    expect_same({20, 64, 16, 8, 16, 2, 200, type, true}, Precision::Exact, 1e-5);
    expect_same({2, 16, 8, 4, 12, 40, 40, type}, Precision::Exact, 1e-5);
  }
}

TEST(CudaLatentAttention, InSegments) {
  expect_same({3, 40, 24, 12, 20, 4, 160}, Precision::Fine, kHalves, 1);
  expect_same({7, 40, 24, 12, 20, 70, 160, KvType::F16}, Precision::Fine, kHalves, 1);
}

// Matrices of heads in stored formats, both ways.
TEST(CudaHeadMatmul, EveryFormat) {
  for (const WeightFormat& format : test::cuda_formats()) {
    Random random(3);
    const std::int64_t cols = test::fitting_cols(format, 300);
    const test::RandomWeight stored(random, format, 3 * 40, cols);
    const WeightView view = stored.view();
    for (const bool transpose : {false, true}) {
      const std::int64_t n = 6, n_in = transpose ? 33 : cols, n_out = transpose ? cols : 33;
      const auto x = random.floats(n * 3 * n_in);
      const auto product = [&](AttentionSide side) {
        const View y = side.floats(std::vector<float>(static_cast<std::size_t>(n * 3 * n_out)), n);
        side->head_matmul({.matrix = {test::operand(view), 40, 5, 33, transpose},
                           .n_heads = 3,
                           .x = side.floats(x, n),
                           .x_head_stride = n_in,
                           .y = y,
                           .y_head_stride = n_out});
        return side.read(y);
      };
      EXPECT_LT(difference(product(emulated(Precision::Exact)), product(scalar())), 1e-5)
          << test::format_name(format) << transpose;
    }
  }
}

// The matrices of heads are in f32, so are the products with them.
TEST(CudaLatentAttention, OfEveryType) {
  for (const KvType type : kAllKvTypes) {
    expect_same({3, 40, 24, 12, 20, 4, 60, type}, Precision::Fine, kHalves);
    expect_same({20, 64, 16, 16, 16, 2, 200, type, true}, Precision::Fine, kHalves);
    expect_same({2, 16, 8, 4, 12, 40, 40, type}, Precision::Fine, kHalves);
    expect_same({40, 48, 16, 16, 16, 2, 100, type}, Precision::Fine, kHalves);
  }
  expect_same({17, 512, 16, 64, 16, 1, 30, KvType::F16}, Precision::Fine, kHalves);
  expect_same({2, 100, 128, 64, 128, 20, 50, KvType::BF16}, Precision::Fine, kHalves);
  expect_same({2, 100, 128, 64, 128, 20, 20, KvType::Q8, true}, Precision::Fine, kHalves);
}

}  // namespace
}  // namespace moeflux
