// What a pass over the counting backend finds to be its widest operations.
#include "backends/counting_backend.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

View rows(std::int64_t n, std::int64_t cols) {
  return {.rows = n, .cols = cols, .stride = cols};
}
Weight matrix(std::int64_t n, std::int64_t cols) {
  return {.rows = n, .cols = cols};
}
// A list of n rows: what routed experts have.
View list(const Buffer& buffer, std::int64_t n) {
  return {.buffer = &buffer, .rows = 1, .cols = n, .stride = n, .type = ElementType::I32};
}
FfnOp ffn(std::int64_t n, std::int64_t d_ff, std::int64_t d) {
  return {.gate = matrix(d_ff, d),
          .up = matrix(d_ff, d),
          .down = matrix(d, d_ff),
          .x = rows(n, d),
          .hidden = rows(n, d_ff),
          .y = rows(n, d)};
}

TEST(CountingBackend, BuffersHaveASizeAndNoMemory) {
  CountingBackend backend;
  const auto buffer =
      backend.allocate(std::uint64_t{1} << 50, MemoryKind::Device, Backing::Touched);
  EXPECT_EQ(buffer->bytes(), std::uint64_t{1} << 50);
  EXPECT_EQ(buffer->host(), nullptr);
  EXPECT_EQ(buffer->address(), nullptr);
  EXPECT_EQ(backend.scratch_bytes(), 0u);
}

TEST(CountingBackend, NothingIsWideAtFirst) {
  const WidestOps widest = CountingBackend().widest();
  for (const std::int64_t value :
       {widest.matmul_values, widest.cols, widest.d_model, widest.ffn_rows, widest.d_ff,
        widest.expert_rows, widest.d_expert, widest.d_query, widest.d_value, widest.d_latent})
    EXPECT_EQ(value, 0);
}

TEST(CountingBackend, TheWidestProductStays) {
  CountingBackend backend;
  backend.embed({.table = matrix(100, 48), .tokens = {}, .out = rows(7, 48)});
  const MatmulOp ops[] = {{.weight = matrix(10, 48), .x = rows(7, 48), .y = rows(7, 10)},
                          {.weight = matrix(5, 96), .x = rows(2, 96), .y = rows(2, 5)}};
  backend.matmuls(ops);
  backend.matmul({.weight = matrix(1, 8), .x = rows(1, 8), .y = rows(1, 1)});
  EXPECT_EQ(backend.widest().d_model, 48);
  EXPECT_EQ(backend.widest().matmul_values, 7 * 48);
  EXPECT_EQ(backend.widest().cols, 96);
  backend.head_matmul({.matrix = {matrix(6, 200), 2, 0, 2, false},
                       .n_heads = 3,
                       .x = rows(1, 600),
                       .x_head_stride = 200,
                       .y = rows(1, 6),
                       .y_head_stride = 2});
  EXPECT_EQ(backend.widest().cols, 200);
  EXPECT_EQ(backend.widest().matmul_values, 7 * 48);
}

TEST(CountingBackend, HeadsOfEveryKindOfAttention) {
  CountingBackend backend;
  const AttentionSpec plain{.n_heads = 4, .n_kv_heads = 2, .d_head = 64};
  backend.attention(
      {.spec = &plain, .q = {}, .k = {}, .v = {}, .sinks = {}, .positions = {}, .out = {}});
  EXPECT_EQ(backend.widest().d_query, 64);
  EXPECT_EQ(backend.widest().d_value, 64);
  EXPECT_EQ(backend.widest().d_latent, 0);
  const MlaSpec latent{.n_heads = 4, .kv_rank = 96, .d_nope = 50, .d_rope = 30, .d_value = 40};
  backend.latent_attention(
      {.spec = &latent, .q_latent = {}, .q = {}, .kv = {}, .positions = {}, .out = {}});
  EXPECT_EQ(backend.widest().d_query, 80);
  EXPECT_EQ(backend.widest().d_value, 64);
  EXPECT_EQ(backend.widest().d_latent, 126);

  CountingBackend expanded;
  expanded.expanded_attention(
      {.spec = &latent, .keys = {}, .values = {}, .q = {}, .kv = {}, .positions = {}, .out = {}});
  EXPECT_EQ(expanded.widest().d_query, 80);
  EXPECT_EQ(expanded.widest().d_value, 40);
  EXPECT_EQ(expanded.widest().d_latent, 126);
}

// Routed experts come several in a call, with lists of rows; others alone, without.
TEST(CountingBackend, ExpertsAreCountedApart) {
  CountingBackend backend;
  const auto buffer = backend.allocate(64, MemoryKind::Device, Backing::Touched);
  backend.ffn(ffn(9, 300, 32));
  EXPECT_EQ(backend.widest().ffn_rows, 9);
  EXPECT_EQ(backend.widest().d_ff, 300);
  EXPECT_EQ(backend.widest().cols, 300);
  EXPECT_EQ(backend.widest().expert_rows, 0);
  EXPECT_EQ(backend.widest().d_expert, 0);

  std::vector<FfnOp> experts{ffn(4, 20, 32), ffn(10, 20, 32)};
  for (FfnOp& op : experts) op.rows_in = op.rows_out = list(*buffer, op.hidden.rows);
  backend.ffns(experts);
  EXPECT_EQ(backend.widest().expert_rows, 14);
  EXPECT_EQ(backend.widest().d_expert, 20);
  EXPECT_EQ(backend.widest().ffn_rows, 9);
  EXPECT_EQ(backend.widest().d_ff, 300);

  experts.push_back(ffn(2, 40, 32));  // a shared one in the same call
  backend.ffns(experts);
  EXPECT_EQ(backend.widest().expert_rows, 16);
  EXPECT_EQ(backend.widest().d_expert, 20);
  EXPECT_EQ(backend.widest().d_ff, 300);
}

}  // namespace
}  // namespace moeflux
