// A backend: memory, and the operations of op.h on it. Calls come from one thread; results are
// complete on return as seen by later calls and by download().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/op.h"

namespace moeflux {

inline constexpr std::size_t kMostMatmuls = 8;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual int n_threads() const = 0;
  // Called now and then, by the thread that calls operations, while they compute.
  virtual void set_between(std::function<void()> between) = 0;
  // Memory of its own that it holds between operations; never more than planned for, see below.
  virtual std::uint64_t scratch_bytes() const = 0;
  // Calls the body for 0 .. n - 1 on this backend's host threads.
  virtual void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) = 0;

  virtual void embed(const EmbedOp& op) = 0;
  virtual void rms_norm(const RmsNormOp& op) = 0;
  // Independent of each other, at most kMostMatmuls: one hand-over to the threads serves all.
  virtual void matmuls(std::span<const MatmulOp> ops) = 0;
  void matmul(const MatmulOp& op) { matmuls({&op, 1}); }
  virtual void add(const AddOp& op) = 0;
  virtual void rope(const RopeOp& op) = 0;
  virtual void store_kv(const StoreKvOp& op) = 0;
  virtual void attention(const AttentionOp& op) = 0;
  virtual void short_conv(const ShortConvOp& op) = 0;
  virtual void gated_delta(const GatedDeltaOp& op) = 0;
  virtual void latent_attention(const LatentAttentionOp& op) = 0;
  virtual void expanded_attention(const ExpandedAttentionOp& op) = 0;
  virtual void head_matmul(const HeadMatmulOp& op) = 0;
  // Independent of each other: one hand-over to the threads serves all.
  virtual void ffns(std::span<const FfnOp> ops) = 0;
  void ffn(const FfnOp& op) { ffns({&op, 1}); }
  virtual void combine(const CombineOp& op) = 0;
};

// What activations become in products with quantized weights.
enum class Precision {
  Exact,  // they stay f32
  Fine,   // rounded to 16 bits: far less than the rounding of the weights, at the same bytes
  Fast,   // to 8 bits in feed-forwards, where that hardly shows: half of their arithmetic
};
std::string_view precision_name(Precision precision);  // "exact", "fine", "fast"

// Whether matmul() and ffns() take affine weights in panels (quant/panels.h) or in rows. All other
// operations take them in rows, embed() either way.
inline bool wants_panels(Precision precision) {
  return precision != Precision::Exact;
}

struct BackendOptions {
  std::string_view cpu_isa = {};  // "scalar", "avx2", ...; empty: the best this processor has
  int n_threads = 0;              // 0: one per physical core this process may use
  Precision precision = Precision::Exact;
};

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

// The widest operations of a forward pass, as far as a backend takes memory of its own for them.
struct WidestOps {
  std::int64_t matmul_values = 0;  // rows * columns of the largest input of a product
  std::int64_t cols = 0;           // of any weight
  std::int64_t d_model = 0;
  // Feed-forwards that come alone in a call, and several in one: rows of activations, and hidden
  // values of each.
  std::int64_t ffn_rows = 0, d_ff = 0;
  std::int64_t expert_rows = 0, d_expert = 0;
  std::int64_t d_query = 0, d_value = 0, d_latent = 0;  // of a head of attention
};
// That memory of a CPU backend, at most, at any precision.
std::uint64_t cpu_scratch_bytes(const WidestOps& ops, int n_threads);

}  // namespace moeflux
