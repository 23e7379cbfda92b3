// Feeds a session token by token, several at a time where drafts turn out right.
//
// advance() says what follows a token. With drafts, one pass has run the token and drafts of what
// comes after it; as long as the caller goes on with what was drafted, the rows of that pass answer
// without another one. The first token that is not the draft takes the rest back. So the caller
// draws every token from the logits the model has at that place, and whether something was drafted
// changes the time it takes and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "runtime/mtp_drafter.h"
#include "runtime/ngram_drafter.h"

namespace moeflux {

struct DraftOptions {
  bool mtp = false;               // with the model's MTP head, where it has one
  bool ngram = false;             // from what the text has said before; asked first
  std::optional<int> depth = {};  // always that many; empty: as it pays

  bool any() const { return mtp || ngram; }
};

struct DraftStats {
  std::int64_t passes = 0;
  std::int64_t drafted = 0;   // tokens
  std::int64_t accepted = 0;  // of these
};

// The drafts of one session, of every kind asked for. How many is fixed or what the engine's
// governor finds to pay, and never more than engine.max_drafts().
class Drafter {
 public:
  Drafter(Engine& engine, const DraftOptions& options);

  bool is_on() const { return options_.any(); }
  // At most `count` drafts of what follows the session's tokens and then `next`.
  void draft(Session& session, TokenId next, std::int64_t count, std::vector<TokenId>& drafts);
  // Where the pass over the session's next n tokens leaves its hidden rows; null: nowhere.
  float* hidden_rows(Session& session, std::int64_t n);
  // Has the MTP head see what it has not seen yet, so that the session can be kept with that.
  void catch_up(Session& session);
  // A pass of one session alone brought it so many tokens, drafting included.
  void record(std::int64_t n_tokens, double seconds);

 private:
  Engine& engine_;
  DraftOptions options_;
  std::optional<MtpDrafter> mtp_;
  NgramDrafter ngram_;
};

class Decoder {
 public:
  // The session must outlive it.
  Decoder(Engine& engine, Session& session, const DraftOptions& options);
  ~Decoder();  // settles
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Logits after the last of the tokens, valid until the next call. May be called for pieces of a
  // prompt of n_prompt tokens; 0: they are all of it.
  std::span<const float> prefill(std::span<const TokenId> tokens, std::int64_t n_prompt = 0,
                                 const std::function<bool()>& cancelled = {});
  void catch_up() { drafter_.catch_up(session_); }
  // Logits after `token`. A pass has at most so many drafts.
  std::span<const float> advance(
      TokenId token, std::int64_t max_drafts = std::numeric_limits<std::int64_t>::max());
  // Takes back what was drafted and not confirmed: the session is what plain decoding leaves.
  void settle();

  // Tokens the session holds because the caller said so.
  std::int64_t length() const { return session_.length() - n_unconfirmed(); }
  const DraftStats& stats() const { return stats_; }

  // For any number of drafts; nothing without.
  static std::uint64_t bytes_needed(const ModelConfig& config, std::int64_t max_batch,
                                    int max_drafts);

 private:
  std::int64_t n_unconfirmed() const { return static_cast<std::int64_t>(drafts_.size() - next_); }
  std::span<const float> row(std::size_t i) const;
  void tell_drafter();

  Engine& engine_;
  Session& session_;
  Drafter drafter_;
  MemoryBudget::Reservation reservation_;
  std::vector<float> logits_;    // [1 + max_drafts, n_vocab] of the last pass
  std::vector<TokenId> tokens_;  // of the last pass
  std::vector<TokenId> drafts_;  // of these
  std::size_t next_ = 0;         // drafts that were confirmed
  double pass_seconds_ = 0;
  DraftStats stats_;
};

}  // namespace moeflux
