// One sequence of tokens and everything the model remembers of it.
//
// Invariant: length() advances only after a whole forward pass has succeeded. A pass that fails
// half-way leaves the session poisoned: it refuses to go on until reset().
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "backends/kv_cache.h"
#include "base/aligned_buffer.h"
#include "base/memory_budget.h"
#include "model/model_config.h"

namespace moeflux {

class KvCache {
 public:
  explicit KvCache(const KvShape& shape) : shape_(shape), memory_(shape.bytes()) {}
  KvView view() { return {shape_, memory_.data()}; }

 private:
  KvShape shape_;
  AlignedBuffer memory_;
};

struct AttentionState {
  KvCache k, v;  // n_kv_heads x d_head; keys after norm and RoPE
};
struct DeltaState {
  AlignedBuffer conv;  // [conv_width - 1, conv_dim], inputs of the convolution, oldest first
  AlignedBuffer s;     // [n_value_heads, d_key, d_value]
};
struct LatentState {
  KvCache kv;  // latent | rotary key, after norm and RoPE
};
using LayerState = std::variant<AttentionState, DeltaState, LatentState>;

// How much a session remembers, and how exactly.
struct SessionShape {
  std::int64_t max_length = 0;  // positions
  KvType kv_type = KvType::F32;
};

class Session {
 public:
  // Reserves "context" from `budget` for all positions; memory is touched only as they fill.
  Session(const ModelConfig& config, const SessionShape& shape, MemoryBudget& budget);

  std::int64_t length() const { return length_; }          // positions the trunk has seen
  std::int64_t mtp_length() const { return mtp_length_; }  // positions the MTP head has seen
  std::int64_t max_length() const { return max_length_; }

  LayerState& layer(int index) { return layers_[static_cast<std::size_t>(index)]; }
  LayerState& mtp() { return *mtp_; }

  void reset();  // forgets everything

  // For the forward pass.
  void check(std::int64_t n_tokens)
      const;  // throws LimitExceeded when n_tokens do not fit, Error when poisoned
  void begin(std::int64_t n_tokens);  // check(); from here to commit() a failure poisons
  void commit(std::int64_t n_tokens);
  void commit_mtp(std::int64_t n_tokens) { mtp_length_ += n_tokens; }

  static std::uint64_t bytes_needed(const ModelConfig& config, const SessionShape& shape);
  // What one position adds to that; lengths are rounded up to multiples of 16.
  static std::uint64_t bytes_per_position(const ModelConfig& config, KvType type);

 private:
  MemoryBudget::Reservation reservation_;
  std::int64_t max_length_;
  std::int64_t length_ = 0;
  std::int64_t mtp_length_ = 0;
  bool in_pass_ = false;  // still set when the next pass begins: the last one failed
  std::vector<LayerState> layers_;
  std::optional<LayerState> mtp_;
};

}  // namespace moeflux
