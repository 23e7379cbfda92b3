// One answer: prefill the prompt, then sample token by token until something ends it. Text is
// handed on as soon as it is certain: never half a character, never the beginning of a stop string.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/activity.h"
#include "engine/decoder.h"
#include "engine/engine.h"
#include "runtime/sampling/sampling_params.h"
#include "runtime/sampling/token_constraint.h"

namespace moeflux {

struct GenerateRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::int64_t max_tokens = 0;            // 0: as many as the context holds
  std::vector<std::string> stop;          // texts that end the answer; not part of it
  std::vector<TokenId> shown_special;     // special tokens that are part of the text
  bool ignore_end = false;                // go on past the model's own end tokens
  DraftOptions drafts = {};               // changes the time an answer takes, never the answer
  TokenConstraint* constraint = nullptr;  // what the answer may be; made for this answer
};

using FeedTokens = std::function<void(std::span<const TokenId> piece, std::int64_t n_prompt)>;

struct GenerateEvents {
  std::function<void(std::string_view)> on_text;  // text to show, in order
  std::function<bool()> cancelled;                // asked before every pass
  // Reads the prompt in generate()'s stead: brings the session to a beginning of it and gives the
  // rest to `feed`, in pieces, all of it. Empty: the whole prompt is read in one piece.
  std::function<void(std::span<const TokenId> prompt, const FeedTokens& feed)> feed_prompt = {};
};

enum class StopReason { EndToken, StopString, MaxTokens, ContextFull, Cancelled };
std::string_view stop_reason_name(
    StopReason reason);  // "end", "stop", "length", "context", "cancelled"

struct GenerateResult {
  std::vector<TokenId> tokens;  // without the end token
  std::string text;             // special tokens left out, but for shown_special
  StopReason reason = StopReason::EndToken;
  std::int64_t n_prompt = 0;  // tokens of it that were read
  double prefill_seconds = 0;
  double decode_seconds = 0;
  Activity prefill, decode;
  DraftStats drafts;
};

// The session may hold a beginning already; the prompt is appended to it.
GenerateResult generate(Engine& engine, Session& session, const GenerateRequest& request,
                        const GenerateEvents& events = {});

}  // namespace moeflux
