// Keeps the calls that a model makes of its own accord well-formed. Everything is free, and costs
// nothing, until the model opens a block of calls; from there a grammar says what may follow, and
// after the block everything is free again. In a thought nothing is a call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/sampling/grammar_constraint.h"
#include "text/replies/reply_thinking.h"

namespace moeflux {

class Tokenizer;

class CallConstraint : public TokenConstraint {
 public:
  struct Options {
    ReplyFormat format = ReplyFormat::Plain;
    std::string opener = {};  // what the grammar's text follows
    std::vector<TokenId> end_tokens = {};
    bool opens_thought = false;  // the answer begins inside of a thought
    bool in_answer = false;      // or inside of its content
    bool repeats = true;         // false: the answer ends with its first block
  };
  // `tokenizer` must outlive this.
  CallConstraint(const Tokenizer& tokenizer, std::shared_ptr<TokenMasks> masks, Options options);

  std::span<const std::uint8_t> allowed() override;
  void accept(TokenId token) override;
  bool may_end() const override { return !call_ || call_->may_end(); }
  bool must_end() const override { return call_ && call_->must_end(); }

 private:
  enum class Place { Begin, Thought, Content };
  void read(std::string_view text);
  void read_harmony();
  bool find_begin();
  void begin_call(const std::string& rest);

  const Tokenizer& tokenizer_;
  std::shared_ptr<TokenMasks> masks_;
  Options options_;
  ThoughtMarkers marks_;
  Place place_;
  std::string seen_;                       // the last bytes, as far as they may matter
  std::optional<GrammarConstraint> call_;  // while a block is open
};

}  // namespace moeflux
