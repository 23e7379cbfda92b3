// The forward pass: the file to read first (forward.cpp).
//
// A batch is a list of spans: some new tokens of one session each. Prefill, decode and verification
// of drafts are the same call. Dense operations run over all rows of the batch at once, mixers run
// per span, experts once for all rows that chose them. Used by one thread.
//
// All operands lie in the backend's memory. Tokens and positions are uploaded once per pass; the
// host looks at what the sampler needs, at routes where it drives the experts, and at what an
// observer asks for, each time after it has waited for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "base/memory_budget.h"
#include "experts/streamer.h"
#include "model/blocks.h"
#include "model/model_config.h"
#include "runtime/session.h"
#include "runtime/weight_store.h"
#include "runtime/workspace.h"

namespace moeflux {

// Tokens of a long pass that a mixer takes at a time. Latent attention multiplies keys and values
// out for each slice: the longer, the less often.
inline constexpr std::int64_t kMixerSlice = 512, kLatentSlice = 1024;
// Of a device with many processors and caches that no slice fits into.
inline constexpr std::int64_t kDeviceMixerSlice = 2048;

enum class LogitsOf { None, LastToken, EveryToken };

struct Span {
  Session* session = nullptr;
  std::span<const std::int32_t> tokens;
  LogitsOf logits_of = LogitsOf::LastToken;
  float* logits = nullptr;    // [1 or tokens.size(), n_vocab]; host memory
  float* hidden = nullptr;    // [tokens.size(), d_model] after the final norm; null: not wanted
  std::int64_t n_drafts = 0;  // the last tokens are drafts: session->take_back() may follow
  // Tokens of the prompt that these are part of, in however many passes it is read: a long one may
  // be computed in another form than single tokens, with other rounding. 0: as single tokens are.
  std::int64_t prompt_tokens = 0;
  // A failed pass leaves the session as it was. Costs a copy of the recurrent state, and needs
  // session->can_keep_before(); not together with drafts.
  bool undo_on_failure = false;
};

// Rows of the MTP head. hidden[i] is the trunk's output (after the final norm) at the position of
// the head's row mtp_length() + i, tokens[i] the token that follows it; a row of logits predicts
// the token after that.
struct MtpSpan {
  Session* session = nullptr;
  const float* hidden = nullptr;  // [tokens.size(), d_model]
  std::span<const std::int32_t> tokens;
  LogitsOf logits_of = LogitsOf::EveryToken;
  float* logits = nullptr;
  float* out_hidden = nullptr;  // [tokens.size(), d_model], the head's own normed output, to draft
                                // further from; or null
};

// Sees the inside of a pass: for verification and traces. Rows are those of the batch.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // index 0: the embeddings; i: the output of layer i-1; n_layers: the final norm's output replaces
  // the last layer's.
  virtual void on_hidden(int /*index*/, const float* /*x*/, std::int64_t /*n*/) {}
  virtual void on_route(int /*layer*/, const std::int32_t* /*ids*/, const float* /*weights*/,
                        std::int64_t /*n*/, int /*top_k*/) {}
};

inline MatmulOp product(const Linear<Resident>& linear, const View& x, const View& y) {
  return {.weight = linear.weight, .bias = linear.bias, .x = x, .y = y};
}

// Pairs (token, slot) sorted by expert: those of the i-th used expert are [begin[i], begin[i + 1]).
struct ExpertGroups {
  std::vector<std::int32_t> experts;  // used ones, ascending
  std::vector<std::int32_t> begin;
  std::vector<std::int32_t> lists;  // the token of each pair, then token * top_k + slot of each
};

class Forward {
 public:
  struct Parts {
    const ModelConfig* config;
    const ModelTensors<Resident>* tensors;
    Backend* backend;
    ExpertStreamer* experts;  // null: a pass that is only counted (pass_memory.h)
    std::int64_t mixer_slice = kMixerSlice;
  };
  // max_tokens: rows a batch may have, for which workspace_bytes suffice (pass_memory.h).
  Forward(const Parts& parts, MemoryBudget& budget, std::int64_t max_tokens,
          std::uint64_t workspace_bytes);

  std::int64_t max_tokens() const { return max_tokens_; }

  // While a layer computes, prefetch this many experts per token for the next one; 0: none. Changes
  // when bytes are read, never a result.
  void set_lookahead(int count) { lookahead_ = count; }

  // Runs the batch and advances its sessions. Throws Error; sessions of a failed batch are as they
  // were or poisoned, see session.h. `cancelled`, when given, is asked before every layer; true
  // throws Error(Cancelled).
  void run(std::span<const Span> batch, ForwardObserver* observer = nullptr,
           const std::function<bool()>& cancelled = {});

  // The MTP head alone; advances mtp_length().
  void run_mtp(const MtpSpan& span);

  // Time spent in each layer since construction, reading included; the MTP layer is the last.
  const std::vector<std::uint64_t>& layer_ns() const { return layer_ns_; }

  std::uint64_t workspace_peak() const { return workspace_.peak_bytes(); }

  // Whether the prompt's latent attention multiplies keys and values out.
  static bool expands(const MlaSpec& spec, std::int64_t prompt_tokens);

  // Rows whose experts have been chosen.
  struct RoutedRows {
    View x, h;
    View ids;     // I32 [n, top_k]
    View lists;   // I32 [2, n * top_k]: ExpertGroups::lists
    View hidden;  // scratch [n * top_k, d_expert]
    View out;     // [n * top_k, d]: one row per (token, slot)
  };

 private:
  // The rows of a batch that belong to one session, for one layer.
  struct Rows {
    LayerState* state;
    std::int64_t first;  // row in the batch
    std::int64_t n;
    View positions;  // of these rows in their sequence
    Session* session;
    std::int64_t n_drafts = 0;  // of these rows, the last ones
    bool keep_before = false;
    bool begins = true;              // the session's first rows of this pass
    std::int64_t prompt_tokens = 0;  // see Span
  };
  // Tokens and positions of a pass, each I32 [1, n].
  struct Inputs {
    View tokens, positions;
  };

  // The parts of a pass, in order.
  Inputs upload_inputs(Workspace::Frame& frame);  // of tokens_and_positions_
  void run_layers(std::span<const Span> batch, const std::function<bool()>& cancelled,
                  const Inputs& inputs, const View& x);
  void layer(const Layer<Resident>& layer, std::span<const Rows> rows, const View& x);
  void mix_in_slices(const Layer<Resident>& layer, std::span<const Rows> rows, const View& x);
  void head(std::span<const Span> batch, const View& h, const View& gathered);
  void head(const View& h);  // of these rows, into logit_rows_
  void want_logits(float* logits, std::int64_t n_rows);

  void embed(const Inputs& inputs, const View& out);
  bool is_counted() const { return experts_ == nullptr; }
  void norm(const View& x, const View& weight, const View& out);
  void observe_hidden(int index, const View& x);
  void observe_route(const View& ids, const View& weights);
  void download(const View& view, void* to);  // rows that lie side by side; complete after a wait
  void check_tokens(std::span<const std::int32_t> tokens) const;

  // Mixers (mixers/*.cpp): out = mixer(h) for rows of several sessions. Projections run over all
  // rows, so that weights are read once; what depends on a session's state runs for each.
  struct MixerRows {
    std::span<const Rows> sessions;
    View h, out;
  };
  void mix(const Attention<Resident>& attention, const MixerRows& rows);
  void mix(const GatedDelta<Resident>& delta, const MixerRows& rows);
  void mix(const LatentAttention<Resident>& latent, const MixerRows& rows);
  void absorb(const LatentAttention<Resident>& latent, std::span<const Rows> rows, const View& q,
              const View& values);

  // Feed-forwards (moe.cpp): out = ffn(h) for all rows. h = norm(x).
  struct FfnRows {
    View x, h, out;
  };
  void feed(const FeedForward<Resident>& ffn, const FfnRows& rows);
  void feed(const Moe<Resident>& moe, const FfnRows& rows);
  // The routed experts of a layer, one operation with two ways to run it.
  void run_experts_from_host(const Moe<Resident>& moe, const RoutedRows& rows);
  void run_experts_on_device(const Moe<Resident>& moe, const RoutedRows& rows);
  void end_device_experts();  // of a pass: waits, throws what failed
  void abandon_operations();  // of a pass that has failed: waits for what is enqueued
  void count_experts(const Moe<Resident>& moe, const RoutedRows& rows);
  // Prefetches the experts that the next layer will probably choose (lookahead.cpp).
  void look_ahead(const View& x);

  const ModelConfig& config_;
  const ModelTensors<Resident>& tensors_;
  Backend& backend_;
  ExpertStreamer* experts_;
  std::int64_t mixer_slice_;
  std::int64_t max_tokens_;
  Workspace workspace_;
  ForwardObserver* observer_ = nullptr;
  int layer_index_ =
      0;  // of the layer being computed; -1: before the first; n_layers: the MTP layer
  int lookahead_ = 0;

  // Host memory of a pass, kept so that it grows only until it is large enough for every pass.
  std::vector<Rows> rows_, slice_;
  std::vector<std::int32_t> tokens_and_positions_;
  std::vector<float*> logit_rows_;  // where rows of logits go
  std::vector<std::int32_t> ids_;   // of chosen experts
  std::vector<std::int32_t> lookahead_ids_, votes_, list_;
  ExpertGroups groups_;
  std::vector<FfnOp> ffns_;
  std::vector<ExpertLease> leases_;
  struct DeviceUse {  // of experts, that the host learns of when the pass is done
    int bank;
    std::vector<std::int32_t> ids;
  };
  std::vector<DeviceUse> device_uses_;
  std::vector<float> observed_;
  std::vector<std::uint64_t> layer_ns_;  // time spent in each layer so far
};

}  // namespace moeflux
