// One sequence of tokens and everything the model remembers of it.
//
// Keys and values are kept by position, so cutting them back costs nothing. The recurrent state of
// linear layers is one value that every token overwrites: a session can go back only to positions
// where a copy of it was kept. Two kinds of copies exist: checkpoints, kept until they are evicted,
// and those a pass leaves behind for tokens that were only drafted.
//
// Invariant: length() advances only after a whole forward pass has succeeded. After one that fails
// half-way the session is what it was, where nothing recurrent was overwritten or a copy was kept;
// else it is poisoned: it refuses to go on until reset() or rewind().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "backends/backend.h"
#include "base/memory_budget.h"
#include "base/token_id.h"
#include "model/model_config.h"

namespace moeflux {

class KvCache {
 public:
  KvCache(const KvShape& shape, Backend& backend)
      : shape_(shape), memory_(backend.allocate(shape.bytes(), MemoryKind::Device)) {}
  KvView view() const { return {shape_, memory_.get()}; }

 private:
  KvShape shape_;
  std::unique_ptr<Buffer> memory_;
};

struct AttentionState {
  KvCache k, v;  // n_kv_heads x d_head; keys after norm and RoPE
};
struct DeltaState {
  DeltaState(std::uint64_t conv_bytes, std::uint64_t s_bytes, Backend& backend)
      : conv(backend.allocate(conv_bytes, MemoryKind::Device)),
        s(backend.allocate(s_bytes, MemoryKind::Device)) {}

  std::unique_ptr<Buffer>
      conv;                   // [conv_width - 1, conv_dim], inputs of the convolution, oldest first
  std::unique_ptr<Buffer> s;  // [n_value_heads, d_key, d_value]

  std::uint64_t bytes() const { return conv->bytes() + s->bytes(); }
  View conv_view(const GatedDeltaSpec& spec) const {
    return {conv.get(), 0, spec.conv_width - 1, spec.conv_dim(), spec.conv_dim()};
  }
  View s_view(const GatedDeltaSpec& spec) const {
    return {s.get(), 0, std::int64_t{spec.n_value_heads} * spec.d_key, spec.d_value, spec.d_value};
  }
  void copy_to(DeltaState& other, Backend& backend) const {
    backend.copy(whole(*conv), whole(*other.conv));
    backend.copy(whole(*s), whole(*other.s));
  }
  void clear(Backend& backend) const {
    backend.clear(whole(*conv));
    backend.clear(whole(*s));
  }
};
struct LatentState {
  KvCache kv;  // latent | rotary key, after norm and RoPE
};
using LayerState = std::variant<AttentionState, DeltaState, LatentState>;

// How much a session remembers, and how exactly.
struct SessionShape {
  std::int64_t max_length = 0;  // positions
  KvType kv_type = KvType::F32;
  int n_checkpoints = 0;  // copies of the recurrent state it may keep
  int max_drafts = 0;     // tokens of a pass that may be taken back
};

// The id of a position whose token is not known: snapshots of old versions carry none. Equal to no
// token, so such a position is never taken for a common prefix.
inline constexpr TokenId kUnknownToken = -1;

class Session {
 public:
  // Reserves "context" from `budget` for all positions; memory is touched only as they fill.
  Session(const ModelConfig& config, const SessionShape& shape, Backend& backend,
          MemoryBudget& budget);

  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::span<const TokenId> tokens() const { return tokens_; }  // length() of them
  std::int64_t max_length() const { return max_length_; }
  KvType kv_type() const { return kv_type_; }
  bool is_poisoned() const { return in_pass_; }
  Backend& backend() const { return *backend_; }  // in whose memory it lies

  int n_layers() const { return static_cast<int>(layers_.size()); }
  LayerState& layer(int index) { return layers_[static_cast<std::size_t>(index)]; }
  const LayerState& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  bool has_mtp() const { return mtp_.has_value(); }
  LayerState& mtp() { return *mtp_; }
  const LayerState& mtp() const { return *mtp_; }

  // Rows the MTP head has seen. It may have missed some positions: its drafts get worse by that,
  // nothing else. Its latest row i is that of position mtp_start() + i.
  std::int64_t mtp_length() const { return mtp_length_; }
  std::int64_t mtp_start() const { return mtp_start_; }

  void reset();  // forgets everything, checkpoints included

  // Checkpoints, at most max_checkpoints() of them. Position 0 needs none, and one that is set
  // there is never evicted.
  bool is_recurrent() const { return !recurrent_.empty(); }
  void checkpoint();  // at length(); evicts the oldest other one when there are too many
  void forget_checkpoint(std::int64_t position);  // none there: does nothing
  bool has_checkpoint(std::int64_t position) const;
  std::vector<std::int64_t> checkpoints() const;  // positions, oldest first
  int max_checkpoints() const { return max_checkpoints_; }
  // Takes effect at the next checkpoint(). Throws Error(OutOfMemory) when that many would not fit.
  void set_max_checkpoints(int count);

  // The largest position up to `position` that rewind() can reach.
  std::int64_t nearest_rewind(std::int64_t position) const;
  // Forgets all that follows. Throws Error(NotFound), and changes nothing, where the state of that
  // position is gone.
  void rewind(std::int64_t position);

  // Takes back the last tokens of the last pass, at most as many as its span called drafts.
  void take_back(std::int64_t n_tokens);

  // For whoever has written the states of all layers: they are now those after `tokens`, and the
  // MTP head has seen `mtp_length` rows, see mtp_start().
  void adopt(std::span<const TokenId> tokens, std::int64_t mtp_start = 0,
             std::int64_t mtp_length = 0);

  // For the forward pass.
  // Throws LimitExceeded when n_tokens do not fit, Error when poisoned.
  void check(std::int64_t n_tokens) const;
  // check(); from here to commit() a failure poisons, unless abandon() mends it. The last n_drafts
  // tokens may be taken back.
  void begin(std::int64_t n_tokens, std::int64_t n_drafts = 0);
  void commit(std::span<const TokenId> tokens);
  // The pass failed: as if it had not begun, if no recurrent layer has run whose state from before
  // the pass is lost.
  void abandon();
  // Whether a pass without drafts can leave that state behind.
  bool can_keep_before() const { return !is_recurrent() || !before_drafts_.empty(); }
  // Where it does so for a layer, before changing it.
  DeltaState& before_pass(int layer);
  void lose_before() { lost_before_ = true; }  // a layer is being changed, and nothing was kept
  // Where the pass leaves the recurrent state of a layer as it is before its i-th draft.
  DeltaState& before_draft(int layer, std::int64_t i);
  void begin_mtp(std::int64_t position);  // its next row is that position's
  void commit_mtp(std::int64_t n_tokens) { mtp_length_ += n_tokens; }
  void cut_mtp(std::int64_t length) { mtp_length_ = length; }  // forgets its rows from there on

  static std::uint64_t bytes_needed(const ModelConfig& config, const SessionShape& shape);
  // What one position adds to that; lengths are rounded up to multiples of 16.
  static std::uint64_t bytes_per_position(const ModelConfig& config, KvType type);
  // What one copy of the recurrent state takes.
  static std::uint64_t recurrent_bytes(const ModelConfig& config);

 private:
  using RecurrentState = std::vector<DeltaState>;  // one for each of recurrent_
  struct Checkpoint {
    std::int64_t position;
    RecurrentState state;  // empty at position 0
  };

  DeltaState& delta(std::size_t i) { return std::get<DeltaState>(layer(recurrent_[i])); }
  RecurrentState new_recurrent_state() const;
  void cut(std::int64_t length);  // tokens, MTP rows and checkpoints behind it

  Backend* backend_;
  MemoryBudget* budget_;
  MemoryBudget::Reservation reservation_, more_checkpoints_;
  std::int64_t max_length_;
  KvType kv_type_;
  int reserved_checkpoints_, max_checkpoints_;
  std::vector<TokenId> tokens_;
  std::int64_t mtp_start_ = 0;
  std::int64_t mtp_length_ = 0;
  std::int64_t n_drafts_ = 0;      // of the last pass that can still be taken back
  bool in_pass_ = false;           // still set when the next pass begins: the last one failed
  std::size_t n_kept_before_ = 0;  // of recurrent_, the first ones, whose states were kept
  bool lost_before_ = false;
  std::vector<LayerState> layers_;
  std::optional<LayerState> mtp_;
  std::vector<int> recurrent_;           // layers with a recurrent state
  std::vector<Checkpoint> checkpoints_;  // oldest first
  std::vector<RecurrentState> before_drafts_;
};

}  // namespace moeflux
