// Measures of a whole model against texts and recorded answers: perplexity, how often the MTP head
// foresees the trunk, and whether greedy answers are token for token those of a reference
// implementation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/decoder.h"

namespace moeflux {

struct PerplexityOptions {
  std::int64_t limit_tokens = 512;  // of each text; what follows is not read
  std::int64_t chunk =
      64;  // tokens per pass; bounds the memory for logits, which every token needs
};

struct Perplexity {
  std::int64_t n_texts = 0;
  std::int64_t n_predictions = 0;      // a text of T tokens has T - 1
  double negative_log_likelihood = 0;  // summed over all predictions
  // The MTP head's most likely token at t against the trunk's at t + 1; 0 of 0 without a head.
  std::int64_t n_drafts = 0;
  std::int64_t n_drafts_agreed = 0;

  double value() const;  // exp(mean negative log-likelihood); NaN without predictions
};

// Control tokens written in a text count as such, and nothing is put before it. Texts of fewer than
// two tokens predict nothing. `on_text`, when given, is called after each text with the sums so
// far; false ends the measurement there.
Perplexity measure_perplexity(Engine& engine, std::span<const std::string> texts,
                              const PerplexityOptions& options,
                              const std::function<bool(const Perplexity&)>& on_text = {});

// A JSON array of strings.
std::vector<std::string> read_texts(const std::string& path);

// One chat with the answer a reference implementation gave to it.
struct AnswerCase {
  Json messages;
  Json tools;  // null: none
  std::optional<bool> enable_thinking;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> greedy_ids;  // without the end token
  std::string want;                 // the right answer
  bool reference_right = false;
};

// A JSON object per line: messages, tools, enable_thinking, prompt_ids, greedy_ids, want, right.
// limit 0: all of them.
std::vector<AnswerCase> read_answers(const std::string& path, std::int64_t limit = 0);

struct AnswerOutcome {
  bool same_prompt = false;  // our template and tokenizer gave prompt_ids
  bool same_answer = false;  // our greedy tokens are greedy_ids
  bool right = false;
  std::string text;  // our answer, special tokens shown
  DraftStats drafts;
  std::size_t n_tokens = 0;
  double decode_seconds = 0;
};

// Answers greedily, at most kAnswerTokens tokens, from the case's messages. Throws Error(Cancelled)
// when options.cancelled says so.
inline constexpr std::int64_t kAnswerTokens = 160;
struct AnswerOptions {
  DraftOptions drafts = {};
  std::function<bool()> cancelled = {};
};
AnswerOutcome check_answer(Engine& engine, Session& session, const AnswerCase& answer,
                           const AnswerOptions& options = {});

}  // namespace moeflux
