#include "backends/counting_backend.h"

#include <algorithm>

namespace moeflux {
namespace {

class SizedBuffer final : public Buffer {
 public:
  SizedBuffer(MemoryKind kind, std::uint64_t bytes) : Buffer(kind, bytes, nullptr, nullptr) {}
};

void raise(std::int64_t& most, std::int64_t value) {
  most = std::max(most, value);
}

}  // namespace

std::unique_ptr<Buffer> CountingBackend::allocate(std::uint64_t bytes, MemoryKind kind, Backing) {
  return std::make_unique<SizedBuffer>(kind, bytes);
}

void CountingBackend::embed(const EmbedOp& op) {
  raise(widest_.d_model, op.out.cols);
}

void CountingBackend::matmuls(std::span<const MatmulOp> ops) {
  for (const MatmulOp& op : ops) {
    raise(widest_.matmul_values, op.x.size());
    raise(widest_.cols, op.weight.cols);
  }
}

void CountingBackend::count_head(std::int64_t d_query, std::int64_t d_value,
                                 std::int64_t d_latent) {
  raise(widest_.d_query, d_query);
  raise(widest_.d_value, d_value);
  raise(widest_.d_latent, d_latent);
}

void CountingBackend::attention(const AttentionOp& op) {
  count_head(op.spec->d_head, op.spec->d_head, 0);
}

void CountingBackend::latent_attention(const LatentAttentionOp& op) {
  count_head(op.spec->d_query(), op.spec->d_value, op.spec->d_row());
}

void CountingBackend::expanded_attention(const ExpandedAttentionOp& op) {
  count_head(op.spec->d_query(), op.spec->d_value, op.spec->d_row());
}

void CountingBackend::head_matmul(const HeadMatmulOp& op) {
  raise(widest_.cols, op.matrix.weight.cols);
}

// Routed experts have lists of rows. Which of them are in one call is a matter of when they arrive:
// at most all.
void CountingBackend::ffns(std::span<const FfnOp> ops) {
  std::int64_t n_rows = 0;
  bool routed = false;
  for (const FfnOp& op : ops) {
    const std::int64_t n = op.hidden.rows, d_ff = op.gate.rows;
    n_rows += n;
    raise(widest_.cols, std::max(op.gate.cols, op.down.cols));
    if (op.rows_in.empty()) {
      raise(widest_.ffn_rows, n);
      raise(widest_.d_ff, d_ff);
    } else {
      raise(widest_.d_expert, d_ff);
      routed = true;
    }
  }
  if (routed) raise(widest_.expert_rows, n_rows);
}

}  // namespace moeflux
