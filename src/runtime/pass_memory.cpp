#include "runtime/pass_memory.h"

#include <limits>
#include <vector>

#include "backends/counting_backend.h"
#include "experts/governor.h"
#include "runtime/forward.h"
#include "runtime/session.h"
#include "runtime/weight_store.h"

namespace moeflux {
namespace {

// Weights that have a shape and no bytes.
class Shapes {
 public:
  Shapes(const Buffer& nowhere, int d_model) : nowhere_(nowhere), d_model_(d_model) {}

  ModelTensors<Resident> model(const ModelConfig& config) const {
    ModelTensors<Resident> t{.embed = matrix(config.n_vocab, d_model_),
                             .final_norm = vector(d_model_),
                             .head = matrix(config.n_vocab, d_model_),
                             .layers = {},
                             .mtp = {}};
    for (const LayerSpec& spec : config.layers) t.layers.push_back(layer(spec));
    if (config.mtp) {
      t.mtp = MtpTensors<Resident>{.embed_norm = vector(d_model_),
                                   .hidden_norm = vector(d_model_),
                                   .fc = matrix(d_model_, 2 * d_model_),
                                   .layer = layer(*config.mtp),
                                   .final_norm = vector(d_model_)};
    }
    return t;
  }

 private:
  Weight matrix(std::int64_t rows, std::int64_t cols) const {
    return {.rows = rows, .cols = cols, .buffer = &nowhere_, .data = 0};
  }
  View vector(std::int64_t size) const { return {&nowhere_, 0, 1, size, size}; }
  Linear<Resident> linear(std::int64_t rows, std::int64_t cols) const {
    return {matrix(rows, cols), {}};
  }

  Layer<Resident> layer(const LayerSpec& spec) const {
    Layer<Resident> layer;
    layer.mixer_norm = layer.ffn_norm = vector(d_model_);
    std::visit([&](const auto& s) { layer.mixer = block(s); }, spec.mixer);
    std::visit([&](const auto& s) { layer.ffn = block(s); }, spec.ffn);
    return layer;
  }

  Attention<Resident> block(const AttentionSpec& s) const {
    const std::int64_t q_rows = std::int64_t{s.n_heads} * s.query_head();
    return {.spec = s,
            .q = linear(q_rows, d_model_),
            .k = linear(s.kv_dim(), d_model_),
            .v = linear(s.kv_dim(), d_model_),
            .o = linear(d_model_, s.q_dim()),
            .q_norm = vector(s.d_head),
            .k_norm = vector(s.d_head),
            .sinks = vector(s.n_heads)};
  }
  GatedDelta<Resident> block(const GatedDeltaSpec& s) const {
    GatedDelta<Resident> t;
    t.spec = s;
    t.qkv = matrix(s.conv_dim(), d_model_);
    t.z = matrix(s.value_dim(), d_model_);
    t.a = t.b = matrix(s.n_value_heads, d_model_);
    t.out = matrix(d_model_, s.value_dim());
    t.conv = vector(std::int64_t{s.conv_width} * s.conv_dim());
    t.a_log = t.dt_bias = vector(s.n_value_heads);
    t.norm = vector(s.d_value);
    return t;
  }
  LatentAttention<Resident> block(const MlaSpec& s) const {
    LatentAttention<Resident> t;
    t.spec = s;
    if (s.q_rank > 0) t.q_a = matrix(s.q_rank, d_model_);
    t.q_a_norm = vector(s.q_rank);
    t.q = matrix(std::int64_t{s.n_heads} * s.d_query(), s.q_rank > 0 ? s.q_rank : d_model_);
    t.kv_a = matrix(s.d_row(), d_model_);
    t.kv_a_norm = vector(s.kv_rank);
    t.kv_b = matrix(std::int64_t{s.n_heads} * (s.d_nope + s.d_value), s.kv_rank);
    t.o = matrix(d_model_, std::int64_t{s.n_heads} * s.d_value);
    return t;
  }
  FeedForward<Resident> block(const DenseFfnSpec& s) const {
    return {s, linear(s.d_ff, d_model_), linear(s.d_ff, d_model_), linear(d_model_, s.d_ff)};
  }
  Moe<Resident> block(const MoeSpec& s) const {
    Moe<Resident> t;
    t.spec = s;
    t.router = linear(s.n_experts, d_model_);
    t.shared = block(DenseFfnSpec{.d_ff = s.d_shared, .activation = s.activation});
    t.shared_gate = matrix(1, d_model_);
    return t;
  }

  const Buffer& nowhere_;
  int d_model_;
};

// The longest pass for which the next layer's router is asked what to prefetch: for longer ones it
// is everything.
std::int64_t longest_with_lookahead(const ModelConfig& config, std::int64_t max_tokens) {
  std::int64_t longest = 0;
  for (const LayerSpec& layer : config.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (moe == nullptr) continue;
    std::int64_t n = max_tokens;
    while (n > longest && surely_all_experts(n, moe->top_k, moe->n_experts)) --n;
    longest = std::max(longest, n);
  }
  return longest;
}

}  // namespace

PassMemory measure_pass(const ModelConfig& config, std::int64_t max_tokens,
                        std::int64_t mixer_slice) {
  constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max() / 2;
  CountingBackend backend;
  MemoryBudget budget(std::numeric_limits<std::uint64_t>::max());
  const auto nowhere = backend.allocate(0, MemoryKind::Device, Backing::Touched);
  const ModelTensors<Resident> tensors = Shapes(*nowhere, config.d_model).model(config);
  Forward forward({.config = &config,
                   .tensors = &tensors,
                   .backend = &backend,
                   .experts = nullptr,
                   .mixer_slice = mixer_slice},
                  budget, max_tokens, kUnbounded);
  forward.set_lookahead(std::numeric_limits<int>::max());
  Session session(config, {.max_length = max_tokens}, backend, budget);

  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(max_tokens));
  const auto run = [&](std::int64_t n, std::int64_t prompt_tokens) {
    if (n == 0) return;
    session.reset();
    const std::span pass = std::span(tokens).first(static_cast<std::size_t>(n));
    const Span span{.session = &session,
                    .tokens = pass,
                    .logits_of = LogitsOf::EveryToken,
                    .prompt_tokens = prompt_tokens};
    forward.run({&span, 1});
    if (config.mtp) forward.run_mtp({.session = &session, .tokens = pass});
  };
  // As single tokens and as a long prompt; and the longest pass that looks ahead.
  constexpr std::int64_t kLongPrompt = 1 << 30;
  for (const std::int64_t n : {max_tokens, longest_with_lookahead(config, max_tokens)}) {
    run(n, 0);
    run(n, kLongPrompt);
  }
  return {forward.workspace_peak(), backend.widest()};
}

}  // namespace moeflux
