// Both kinds of attention against double, the latent one against its expanded form.
#include <cmath>

#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "backends/kv_memory.h"
#include "support/operands.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_close;
using test::operand;
using test::Random;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

std::vector<double> softmax(std::vector<double> scores) {
  double top = -1e300, sum = 0;
  for (const double s : scores) top = std::max(top, s);
  for (double& s : scores) sum += s = std::exp(s - top);
  for (double& s : scores) s /= sum;
  return scores;
}

struct Gqa {
  int n_heads, n_kv_heads, d_head;
  std::int64_t n, first;
  KvType type = KvType::F32;
  bool has_gate = true;
  int window = 0;
  bool has_sinks = false;
};

void check(const Gqa& t, double size, double tolerance) {
  Random random(static_cast<std::uint64_t>(t.first * 7 + t.n_heads));
  const AttentionSpec spec{.n_heads = t.n_heads,
                           .n_kv_heads = t.n_kv_heads,
                           .d_head = t.d_head,
                           .has_output_gate = t.has_gate,
                           .has_sinks = t.has_sinks,
                           .window = t.window,
                           .scale = 1 / std::sqrt(static_cast<float>(t.d_head))};
  const std::int64_t head_stride = spec.query_head(), token_stride = t.n_heads * head_stride + 3;
  const std::int64_t kv_dim = t.n_kv_heads * t.d_head, length = t.first + t.n;
  std::vector<float> q;  // per head: query, gate; then padding
  for (std::int64_t i = 0; i < t.n; ++i) {
    for (int h = 0; h < t.n_heads; ++h) {
      const std::vector<float> head = random.floats(head_stride, size);
      q.insert(q.end(), head.begin(), head.end());
      random.bits();  // the tolerance of sharp scores is for the numbers that follow
    }
    for (int c = 0; c < 3; ++c) q.push_back(random.between(-size, size));
  }
  const std::vector<float> k = random.floats(length * kv_dim, size),
                           v = random.floats(length * kv_dim);
  const std::vector<float> sinks = random.floats(t.n_heads, 2 * size);
  std::vector<double> want;
  for (std::int64_t i = 0; i < t.n; ++i) {
    for (int h = 0; h < t.n_heads; ++h) {
      const std::int64_t kv = h / (t.n_heads / t.n_kv_heads) * t.d_head;
      const float* query = q.data() + i * token_stride + h * head_stride;
      std::vector<double> scores;
      const std::int64_t seen =
          t.window == 0 ? 0 : std::max<std::int64_t>(t.first + i + 1 - t.window, 0);
      for (std::int64_t at = seen; at <= t.first + i; ++at) {
        double s = 0;
        for (int c = 0; c < t.d_head; ++c)
          s += static_cast<double>(query[c]) * k[at * kv_dim + kv + c];
        scores.push_back(s * spec.scale);
      }
      if (t.has_sinks) scores.push_back(sinks[h]);
      std::vector<double> p = softmax(scores);
      if (t.has_sinks) p.pop_back();
      for (int c = 0; c < t.d_head; ++c) {
        double sum = 0;
        for (std::size_t at = 0; at < p.size(); ++at)
          sum += p[at] * v[(seen + static_cast<std::int64_t>(at)) * kv_dim + kv + c];
        want.push_back(t.has_gate ? sum * sigmoid(query[t.d_head + c]) : sum);
      }
    }
  }
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    std::vector<float> out(want.size(), -7);
    const test::KvMemory keys({t.type, KvLayout::Tiles, t.n_kv_heads, t.d_head, length}, backend,
                              k);
    const test::KvMemory values({t.type, KvLayout::Rows, t.n_kv_heads, t.d_head, length}, backend,
                                v);
    backend.attention({.spec = &spec,
                       .q = operand(q.data(), t.n, t.n_heads * head_stride, token_stride),
                       .k = keys.view(),
                       .v = values.view(),
                       .sinks = t.has_sinks ? operand(sinks) : View{},
                       .positions = test::positions(t.first, t.n),
                       .out = operand(out, t.n)});
    expect_close(out, want, tolerance, what);
  });
}

TEST(Attention, AgainstDouble) {
  check({1, 1, 1, 1, 0}, 1, test::kKernelTolerance);    // a length of 1
  check({4, 1, 8, 1, 0}, 1, test::kKernelTolerance);    // one key-value head
  check({6, 2, 24, 5, 0}, 1, test::kKernelTolerance);   // three queries per key
  check({6, 2, 24, 3, 40}, 1, test::kKernelTolerance);  // in the middle of a sequence
  check({3, 3, 17, 4, 100}, 1, test::kKernelTolerance);
  check({4, 2, 256, 2, 300}, 1, test::kKernelTolerance);
}

TEST(Attention, SharpScores) {
  check({4, 2, 32, 6, 50}, 12, 1e-5);
}

TEST(Attention, LongSequences) {
  check({2, 1, 16, 2, 20000}, 1, 1e-5);
}

// A sum over a hundred thousand nearly equal weights: the error of f32 shows here first.
TEST(Attention, VeryLongSequences) {
  check({1, 1, 4, 1, 100000}, 0.1, 1e-4);
}

TEST(Attention, WithoutAnOutputGate) {
  for (const std::int64_t first : {0, 40, 300})
    check({.n_heads = 6, .n_kv_heads = 2, .d_head = 24, .n = 5, .first = first, .has_gate = false},
          1, test::kKernelTolerance);
}

// Windows of one position, inside of a block of keys, across one and over several, as long as the
// context, and longer; a single query, several, and more than a piece has.
TEST(Attention, SlidingWindows) {
  for (const int window : {1, 2, 17, 127, 128, 129, 200, 300, 305, 5000}) {
    for (const auto& [n, first] :
         {std::pair<std::int64_t, std::int64_t>(1, 0), {1, 300}, {5, 126}, {5, 300}, {140, 200}}) {
      Gqa t{.n_heads = 4, .n_kv_heads = 2, .d_head = 8, .n = n, .first = first, .window = window};
      check(t, 1, test::kKernelTolerance);
      t.has_gate = false;
      t.type = KvType::Q8;
      check(t, 1, 1e-2);
    }
  }
}

TEST(Attention, WindowsOfLongSequences) {
  check({.n_heads = 8, .n_kv_heads = 1, .d_head = 16, .n = 1, .first = 20000, .window = 128}, 1,
        test::kKernelTolerance);
  check({.n_heads = 8, .n_kv_heads = 1, .d_head = 16, .n = 300, .first = 2000, .window = 1000}, 1,
        1e-5);
}

TEST(Attention, Sinks) {
  for (const double size : {0.1, 1.0, 6.0}) {
    for (const std::int64_t first : {0, 40, 300}) {
      for (const int window : {0, 1, 100}) {
        Gqa t{.n_heads = 6,
              .n_kv_heads = 2,
              .d_head = 24,
              .n = 5,
              .first = first,
              .has_gate = false,
              .window = window,
              .has_sinks = true};
        check(t, size, 1e-5);
        t.n = 1;
        t.has_gate = true;
        check(t, size, 1e-5);
      }
    }
  }
}

struct Mla {
  int n_heads, kv_rank, d_nope, d_rope, d_value;
  std::int64_t n, first;
  KvType type = KvType::F32;
};

// The expanded form: keys and values of every head from the latents, with B_h = [key rows | value
// rows].
void check(const Mla& t, double tolerance = 1e-5) {
  Random random(static_cast<std::uint64_t>(t.first * 5 + t.kv_rank));
  const MlaSpec spec{.n_heads = t.n_heads,
                     .q_rank = 0,
                     .kv_rank = t.kv_rank,
                     .d_nope = t.d_nope,
                     .d_rope = t.d_rope,
                     .d_value = t.d_value,
                     .rope = {},
                     .scale = 0.3f,
                     .latent_norm_eps = 1e-6f};
  const std::int64_t length = t.first + t.n, head_rows = t.d_nope + t.d_value,
                     d_query = t.d_nope + t.d_rope;
  const std::vector<float> b = random.floats(t.n_heads * head_rows * t.kv_rank, 0.5);
  const std::vector<float> q = random.floats(t.n * t.n_heads * d_query);
  const std::vector<float> latent = random.floats(length * t.kv_rank),
                           rope_key = random.floats(length * t.d_rope);
  const auto expanded = [&](int h, std::int64_t row,
                            std::int64_t at) {  // row of B_h times the latent
    double sum = 0;
    for (int c = 0; c < t.kv_rank; ++c) {
      sum += static_cast<double>(b[(h * head_rows + row) * t.kv_rank + c]) *
             latent[at * t.kv_rank + c];
    }
    return sum;
  };
  std::vector<double> want;  // [n, n_heads, d_value]
  for (std::int64_t i = 0; i < t.n; ++i) {
    for (int h = 0; h < t.n_heads; ++h) {
      const float* query = q.data() + (i * t.n_heads + h) * d_query;
      std::vector<double> scores;
      for (std::int64_t at = 0; at <= t.first + i; ++at) {
        double s = 0;
        for (int c = 0; c < t.d_nope; ++c) s += query[c] * expanded(h, c, at);
        for (int c = 0; c < t.d_rope; ++c)
          s += static_cast<double>(query[t.d_nope + c]) * rope_key[at * t.d_rope + c];
        scores.push_back(s * spec.scale);
      }
      const std::vector<double> p = softmax(scores);
      for (int c = 0; c < t.d_value; ++c) {
        double sum = 0;
        for (std::size_t at = 0; at < p.size(); ++at)
          sum += p[at] * expanded(h, t.d_nope + c, static_cast<std::int64_t>(at));
        want.push_back(sum);
      }
    }
  }
  const WeightView weight{.format = {.kind = WeightKind::F32},
                          .rows = t.n_heads * head_rows,
                          .cols = t.kv_rank,
                          .data = std::as_bytes(std::span(b)).data(),
                          .scales = nullptr,
                          .biases = nullptr};
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const std::int64_t wide = std::int64_t{t.n_heads} * t.kv_rank;
    std::vector<float> q_latent(static_cast<std::size_t>(t.n * wide)), attended = q_latent,
                                                                       out(want.size());
    std::vector<float> rows;  // latent | rotary key
    for (std::int64_t at = 0; at < length; ++at) {
      rows.insert(rows.end(), &latent[at * t.kv_rank], &latent[at * t.kv_rank] + t.kv_rank);
      rows.insert(rows.end(), &rope_key[at * t.d_rope], &rope_key[at * t.d_rope] + t.d_rope);
    }
    const test::KvMemory kv({t.type, KvLayout::Rows, 1, t.kv_rank + t.d_rope, length}, backend,
                            rows);
    const HeadMatrix keys{operand(weight), head_rows, 0, t.d_nope, true},
        values{operand(weight), head_rows, t.d_nope, t.d_value, false};
    backend.head_matmul(
        {keys, t.n_heads, operand(q, t.n), d_query, operand(q_latent, t.n), t.kv_rank});
    backend.latent_attention({.spec = &spec,
                              .q_latent = operand(q_latent, t.n),
                              .q = operand(q, t.n),
                              .kv = kv.view(),
                              .positions = test::positions(t.first, t.n),
                              .out = operand(attended, t.n)});
    backend.head_matmul(
        {values, t.n_heads, operand(attended, t.n), t.kv_rank, operand(out, t.n), t.d_value});
    expect_close(out, want, tolerance, what);

    // Expanded, with the matrix of keys as it is and turned.
    std::vector<float> turned(b.size());  // [head][rank][d_nope]
    for (std::int64_t h = 0; h < t.n_heads; ++h) {
      for (std::int64_t r = 0; r < t.kv_rank; ++r) {
        for (std::int64_t c = 0; c < t.d_nope; ++c)
          turned[(h * t.kv_rank + r) * t.d_nope + c] = b[(h * head_rows + c) * t.kv_rank + r];
      }
    }
    WeightView turned_weight = weight;
    turned_weight.rows = std::int64_t{t.n_heads} * t.kv_rank;
    turned_weight.cols = t.d_nope;
    turned_weight.data = std::as_bytes(std::span(turned)).data();
    const HeadMatrix turned_keys{operand(turned_weight), t.kv_rank, 0, t.kv_rank, false};
    for (const HeadMatrix& of_keys : {keys, turned_keys}) {
      std::fill(out.begin(), out.end(), -7.0f);
      backend.expanded_attention({.spec = &spec,
                                  .keys = of_keys,
                                  .values = values,
                                  .q = operand(q, t.n),
                                  .kv = kv.view(),
                                  .positions = test::positions(t.first, t.n),
                                  .out = operand(out, t.n)});
      expect_close(out, want, tolerance, what + ", expanded");
    }
  });
}

TEST(LatentAttention, BothFormsAreTheAttention) {
  check({1, 1, 1, 2, 1, 1, 0});
  check({3, 40, 24, 12, 20, 4, 0});
  check({5, 33, 16, 8, 7, 3, 60});
  check({2, 128, 64, 32, 64, 2, 200});
  check({20, 40, 8, 8, 8, 9, 250});   // more heads than a tile has lanes, three blocks of keys
  check({2, 16, 8, 4, 12, 300, 40});  // more tokens than a piece has queries
}

// What each type of cache costs: the rounding of keys and values, averaged over positions.
TEST(Attention, EveryTypeOfCache) {
  for (const std::int64_t first : {0, 120, 700}) {
    check({6, 2, 64, 9, first, KvType::F16}, 1, 5e-4);
    check({6, 2, 64, 9, first, KvType::BF16}, 1, 4e-3);
    check({6, 2, 64, 9, first, KvType::Q8}, 1, 7e-3);
    check({4, 1, 45, 3, first, KvType::Q8}, 1, 7e-3);  // a last group of 13
  }
}

TEST(LatentAttention, EveryTypeOfCache) {
  for (const std::int64_t first : {0, 300}) {
    check({5, 48, 16, 8, 16, 4, first, KvType::F16}, 1e-3);
    check({5, 48, 16, 8, 16, 4, first, KvType::BF16}, 8e-3);
    check({5, 48, 16, 8, 16, 4, first, KvType::Q8}, 1e-2);
  }
}

}  // namespace
}  // namespace moeflux
