// Which kernel of attention takes a shape, and how it is launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/launch.h"
#include "backends/op.h"

namespace moeflux::cuda {

inline constexpr std::int64_t kFewTokens = 16;  // of which keys are read in pieces

// A kernel that reads keys in pieces, or in one, and how it is launched.
struct AttentionPlan {
  std::string_view kernel;
  int queries = gpu::kExactQueries;  // of a tile
  int key_block = gpu::kExactKeyBlock;
  int blocks_per_processor = 2;  // that pays
  unsigned threads = gpu::kExactThreads;
  std::int64_t shared_bytes = 0;
};

// most_shared: bytes of a block. None, or null, where no kernel takes the shape; the exact one
// takes all, or throws Error.
AttentionPlan exact_plan(const gpu::AttentionParams& p);
// On tensor cores: heads of few tokens, latents, and many tokens.
std::optional<AttentionPlan> few_tokens_plan(const gpu::AttentionParams& p,
                                             std::int64_t most_shared);
std::optional<AttentionPlan> latent_plan(const gpu::AttentionParams& p, std::int64_t most_shared);

// Attention of many tokens on tensor cores.
struct ManyPlan {
  std::string_view kernel;
  int d, values;  // of keys and values as the kernel takes them
  bool is_staged;
  int queries;  // of a tile
  int keys;     // at a time
  int blocks_per_processor;

  unsigned threads() const { return count(gpu::many_tokens_threads(d, keys)); }
  std::int64_t shared_bytes() const {
    return 2 * (std::int64_t{keys} * (d + values) + std::int64_t{queries} * (d + 8));
  }
};
const ManyPlan* many_tokens_plan(const gpu::AttentionParams& p, std::int64_t most_shared);

// Queries, positions and results; what has a stride of its own is left to the caller.
gpu::AttentionParams attention_params(const View& q, const View& positions, const View& out,
                                      float scale);

}  // namespace moeflux::cuda
