// Drafts what follows with the model's own MTP head: from the trunk's output at a position and the
// token after it, the head predicts the token after that, and from its own output further ones.
//
// The head has keys and values of its own, so it must see every position. Rows of the trunk wait
// here until the head is asked, and then go through it in one pass: while drafting is switched off
// it costs nothing but their memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/memory_budget.h"
#include "runtime/forward.h"

namespace moeflux {

class MtpDrafter {
 public:
  // n_valid: ids from there on are never drafted. Reserves "drafts".
  MtpDrafter(Forward& forward, const ModelConfig& config, std::int64_t n_valid,
             MemoryBudget& budget);

  // Where a pass over the session's next `n` tokens shall leave its hidden rows. The pass follows
  // at once; tokens it takes back afterwards are noticed.
  float* rows(Session& session, std::int64_t n);

  // The head sees all rows whose next token is known, without drafting anything.
  void catch_up(Session& session);

  // At most `count` drafts of what follows the session's tokens and then `next`.
  void draft(Session& session, TokenId next, int count, std::vector<TokenId>& drafts);

  static std::uint64_t bytes_needed(const ModelConfig& config, std::int64_t max_tokens);

 private:
  float* row(std::int64_t i) { return hidden_.floats() + i * d_model_; }
  void forget_taken_back(const Session& session);
  void feed(Session& session, std::int64_t n, LogitsOf logits_of);
  TokenId best_draft() const;

  Forward& forward_;
  std::int64_t d_model_, n_valid_, capacity_;
  MemoryBudget::Reservation reservation_;
  AlignedBuffer hidden_;  // [capacity, d_model] of positions first_, first_ + 1, ...
  std::int64_t first_ = 0;
  std::int64_t n_rows_ = 0;
  TokenId following_ = 0;        // what follows the session's last token
  std::vector<TokenId> tokens_;  // scratch
  std::vector<float> logits_;    // [n_vocab]
  float* out_ = nullptr;         // the head's own output at its last row
};

}  // namespace moeflux
