// Reads a text for what the model makes of it and not to answer it: its hidden states after the
// final norm, pooled to one vector (an embedding), or the logits after its last token (a
// judgement).
//
// It has a session of its own, so the sessions of others keep what they hold, and runs one pass at
// a time, so others decode in between. Where no memory is left beside the plan, the expert cache
// gives up as much until the reading ends. Each row is computed on its own (docs/ARCHITECTURE.md),
// so results do not depend on how a text was cut into passes. Used by the engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "engine/engine.h"

namespace moeflux {

enum class ReadingKind {
  Mean,    // the mean of the hidden states of all tokens
  Last,    // that of the last token
  Logits,  // what follows the last token, [n_sampled]
};

class TextReading {
 public:
  // For texts of up to `max_tokens`. Throws Error(OutOfMemory), with what is needed, where neither
  // the budget nor the cache has room.
  TextReading(Engine& engine, std::int64_t max_tokens);
  ~TextReading();
  TextReading(const TextReading&) = delete;
  TextReading& operator=(const TextReading&) = delete;

  // `tokens` must outlive the reading of this text; not empty.
  void begin(std::span<const TokenId> tokens, ReadingKind kind);
  // One pass. False: the text has been read. `cancelled` is asked before every layer; true throws
  // Error(Cancelled).
  bool step(const std::function<bool()>& cancelled = {});
  // Of a text that has been read.
  const std::vector<float>& result() const { return result_; }

 private:
  void pool(std::int64_t n_rows);

  Engine& engine_;
  std::uint64_t lent_bytes_ = 0;      // by the expert cache
  std::optional<MemoryBudget> lent_;  // of these bytes
  std::optional<MemoryBudget::Reservation> rows_;
  std::unique_ptr<Session> session_;
  std::int64_t max_rows_;      // of a pass
  std::vector<float> hidden_;  // [max_rows, d_model]
  std::span<const TokenId> tokens_;
  ReadingKind kind_ = ReadingKind::Mean;
  std::vector<double> sum_;
  std::vector<float> result_;
};

// Divides by the length of the vector, in double precision; one of zeros stays as it is.
void normalize(std::span<float> vector);

}  // namespace moeflux
