// What the forms of one Anthropic answer have in common: the message around its blocks, the usage,
// and how it ends.
#pragma once

#include <string>
#include <string_view>

#include "server/dialects/anthropic/answer.h"
#include "server/dialects/anthropic/errors.h"

namespace moeflux {

class AnthropicEnvelope {
 public:
  explicit AnthropicEnvelope(AnthropicAnswerOptions options);

  bool shows_thoughts() const { return options_.shows_thoughts; }
  const std::string& request_id() const { return request_id_; }

  // The message without content, before its end is known.
  Json message(const GenerationStarted& start) const;
  // Fills in {"stop_reason", "stop_sequence"}.
  static void add_stop(Json& holder, const GenerationEnded& ended);
  // Fills in the usage, the timings and what it took.
  void add_totals(Json& holder, const GenerationEnded& ended) const;

 private:
  AnthropicAnswerOptions options_;
  std::string id_, request_id_;
};

// Blocks of content as they begin.
Json text_block();
Json thinking_block();
Json tool_use_block(const std::string& name);

// What stands for the signature of a thought. Clients hand it back, and nobody checks it here.
inline constexpr std::string_view kThoughtSignature = "bW9lZmx1eA==";

}  // namespace moeflux
