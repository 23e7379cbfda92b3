// The forward pass: the file to read first (forward.cpp).
//
// A batch is a list of spans: some new tokens of one session each. Prefill, decode and verification
// of drafts are the same call. Dense operations run over all rows of the batch at once, mixers run
// per span, experts once for all rows that chose them. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "base/memory_budget.h"
#include "experts/streamer.h"
#include "model/model_config.h"
#include "model/model_tensors.h"
#include "runtime/router.h"
#include "runtime/session.h"
#include "runtime/workspace.h"

namespace moeflux {

enum class LogitsOf { None, LastToken, EveryToken };

struct Span {
  Session* session = nullptr;
  std::span<const std::int32_t> tokens;
  LogitsOf logits_of = LogitsOf::LastToken;
  float* logits = nullptr;  // [1 or tokens.size(), n_vocab]; host memory
  float* hidden =
      nullptr;  // [tokens.size(), d_model] after the final norm, or null when not wanted
  std::int64_t n_drafts = 0;  // the last tokens are guesses: session->take_back() may follow
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

class Forward {
 public:
  struct Parts {
    const ModelConfig* config;
    const ModelTensors<Resident>* tensors;
    Backend* backend;
    ExpertStreamer* experts;
  };
  // max_tokens: rows a batch may have; the workspace is sized for it.
  Forward(const Parts& parts, MemoryBudget& budget, std::int64_t max_tokens);

  std::int64_t max_tokens() const { return max_tokens_; }

  // While a layer computes, guess this many experts per token for the next one and have them
  // prefetched; 0: none. Changes when bytes are read, never a result.
  void set_lookahead(int width) { lookahead_ = width; }

  // Runs the batch and advances its sessions. Throws Error; sessions of a failed batch are as they
  // were or poisoned, see session.h. `cancelled`, when given, is asked before every layer; true
  // throws Error(Cancelled).
  void run(std::span<const Span> batch, ForwardObserver* observer = nullptr,
           const std::function<bool()>& cancelled = {});

  // The MTP head alone; advances mtp_length().
  void run_mtp(const MtpSpan& span);

  // Time spent in each layer since construction, reading included; the MTP layer is the last.
  const std::vector<std::uint64_t>& layer_ns() const { return layer_ns_; }

  // Whether the prompt's latent attention multiplies keys and values out.
  static bool expands(const MlaSpec& spec, std::int64_t prompt_tokens);

  static std::uint64_t workspace_floats(const ModelConfig& config, std::int64_t max_tokens);

 private:
  // The rows of a batch that belong to one session, for one layer.
  struct Rows {
    LayerState* state;
    std::int64_t first;  // row in the batch
    std::int64_t n;
    std::int64_t position;  // of the first row in its sequence
    Session* session;
    std::int64_t n_drafts;  // of these rows, the last ones
    bool keep_before = false;
    bool begins = true;              // the session's first rows of this pass
    std::int64_t prompt_tokens = 0;  // see Span
  };

  void run_layers(std::span<const Span> batch, const std::function<bool()>& cancelled, float* x,
                  std::int64_t n);
  void layer(const LayerSpec& spec, const LayerTensors<Resident>& tensors,
             std::span<const Rows> rows, float* x, std::int64_t n);
  void mix_in_slices(const LayerSpec& spec, const LayerTensors<Resident>& tensors,
                     std::span<const Rows> rows, float* x, std::int64_t n);
  void norm(const float* x, const float* weight, std::int64_t n, float* out);
  void head(std::span<const Span> batch, const float* h, float* gathered);
  void head(const float* h, std::int64_t n, LogitsOf logits_of, float* logits);
  void check_tokens(std::span<const std::int32_t> tokens) const;

  // Mixers (mixers/*.cpp): out = mixer(h) for n rows of several sessions. Projections run over all
  // rows, so that weights are read once; what depends on a session's state runs for each.
  struct MixerRows {
    std::span<const Rows> sessions;
    std::int64_t n;
    const float* h;
    float* out;
  };
  void mix(const GatedAttentionSpec& spec, const GatedAttentionTensors<Resident>& t,
           const MixerRows& rows);
  void mix(const GatedDeltaSpec& spec, const GatedDeltaTensors<Resident>& t, const MixerRows& rows);
  void keep_state(const DeltaState& from, DeltaState& to);
  void mix(const MlaSpec& spec, const MlaTensors<Resident>& t, const MixerRows& rows);
  void absorb(const MlaSpec& spec, const MlaTensors<Resident>& t, std::span<const Rows> rows,
              const float* q, float* values);
  void expand(const MlaSpec& spec, const MlaTensors<Resident>& t, const Rows& rows, const float* q,
              float* values);

  // Feed-forwards (moe.cpp): out = ffn(h) for all rows. h = norm(x).
  struct FfnRows {
    const float* x;
    const float* h;
    std::int64_t n;
  };
  void ffn(const DenseFfnSpec& spec, const DenseFfnTensors<Resident>& t, const FfnRows& rows,
           float* out);
  void ffn(const MoeSpec& spec, const MoeTensors<Resident>& t, const FfnRows& rows, float* out);
  void route_tokens(const MoeSpec& spec, const float* logits, const float* correction_bias,
                    std::int64_t n, std::int32_t* ids, float* weights);
  // Has the experts prefetched that the next layer will probably choose (lookahead.cpp).
  void look_ahead(const float* x, std::int64_t n);

  const ModelConfig& config_;
  const ModelTensors<Resident>& tensors_;
  Backend& backend_;
  ExpertStreamer& experts_;
  std::int64_t max_tokens_;
  Workspace workspace_;
  ForwardObserver* observer_ = nullptr;
  int layer_index_ =
      0;  // of the layer being computed; -1: before the first; n_layers: the MTP layer
  int lookahead_ = 0;
  std::vector<Rows> rows_, slice_;
  std::vector<RouterScratch> router_scratch_{1};  // one for each thread
  std::vector<FfnOp> ffns_;  // kept between layers, so that a pass allocates nothing
  std::vector<ExpertLease> leases_;
  std::vector<std::uint64_t> layer_ns_;  // time spent in each layer so far
};

}  // namespace moeflux
