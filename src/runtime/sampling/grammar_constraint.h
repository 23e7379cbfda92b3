// A grammar as a TokenConstraint: what is sampled under it is always the prefix of a text of the
// grammar, and there is always a way to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/sampling/token_constraint.h"
#include "text/grammar/token_masks.h"

namespace moeflux {

struct GrammarConstraintOptions {
  // Tokens that end the answer: allowed exactly where the grammar may end. They must be Unused in
  // the TokenTrie.
  std::vector<TokenId> end_tokens = {};

  // When not empty, everything is allowed until one of these tokens was accepted, and the grammar
  // describes what follows it: the end of thinking, the beginning of a tool call.
  std::vector<TokenId> starts_after = {};

  // With starts_after: where the grammar can only end, everything is allowed again until the next
  // of those tokens. Otherwise the answer ends with the grammar.
  bool repeats = false;
};

class GrammarConstraint : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<TokenMasks> masks, GrammarConstraintOptions options);

  std::span<const std::uint8_t> allowed() override;
  void accept(TokenId token) override;
  bool may_end() const override;
  bool must_end() const override;

  // The prefix of the grammar's text, where it was written before the constraint was made: as
  // the end of a token. Before anything else, and without starts_after. False, and nothing changed,
  // if no text of the grammar begins so.
  bool begin_with(std::string_view text);

 private:
  enum class Phase { Waiting, Inside, Ended };

  std::shared_ptr<TokenMasks> masks_;
  GrammarConstraintOptions options_;
  Phase phase_;
  TokenMasks::Cursor cursor_;
  std::vector<std::uint8_t> allowed_;  // [n_ids]
  bool allowed_is_current_ = false;
};

}  // namespace moeflux
