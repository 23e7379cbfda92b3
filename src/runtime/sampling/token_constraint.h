// What an answer may say next: a set of tokens that follows the answer token by token. Grammars and
// JSON schemas are constraints (grammar_constraint.h).
//
// One constraint serves one answer and is used by one thread at a time. The loop, for every token:
//   input.allowed = constraint.allowed();      // SamplerInput: zero forbids, empty allows all
//   token = sampler.sample(input, params);
//   constraint.accept(token);
//   if (constraint.must_end()) stop;           // nothing but an end token could follow
// A draft is checked the same way, position by position: accept() is only for tokens that stay, so
// nothing is ever taken back.
//
// Which tokens end an answer is told to the constraint when it is made; allowed() contains them
// exactly while may_end().
#pragma once

#include <cstdint>
#include <span>

#include "base/token_id.h"

namespace moeflux {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // [n_vocab] or empty (everything is allowed now). Valid until the next call. May throw
  // Error(LimitExceeded) for a grammar that grows out of its bounds.
  virtual std::span<const std::uint8_t> allowed() = 0;

  // Throws Error(BadInput) for a token that allowed() forbids; the constraint is unchanged then.
  virtual void accept(TokenId token) = 0;

  virtual bool may_end() const = 0;   // the answer is complete if it ends here
  virtual bool must_end() const = 0;  // and nothing can be added to it
};

}  // namespace moeflux
