// What a dialect asks of the model and what it hears back, in nobody's dialect: the seam between
// HTTP and the engine.
//
// A dialect turns a body into a GenerationRequest, gives it to GenerationService::start() with a
// sink, and writes what the sink is told in its own words. For each choice (the answers to one
// request, counted from 0) events come in this order: GenerationStarted, PromptProgress for each
// pass over the prompt, then tokens and the pieces of the reply as they come, and exactly one
// GenerationEnded, whatever happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/token_id.h"
#include "engine/scheduler/scheduler_job.h"
#include "server/service/run_report.h"
#include "text/replies/reply_parser.h"
#include "text/replies/reply_thinking.h"
#include "text/replies/reply_tools.h"

namespace moeflux {

// What a request changes of the model's own defaults.
struct SamplingChanges {
  std::optional<double> temperature = {}, top_p = {}, min_p = {}, typical_p = {};
  std::optional<double> repetition_penalty = {}, presence_penalty = {}, frequency_penalty = {};
  std::optional<std::int64_t> top_k = {};
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::optional<std::uint64_t> seed = {};  // none: a new one
};

// What the answer must look like.
struct OutputFormat {
  enum class Kind { Text, JsonObject, JsonSchema, Grammar };
  Kind kind = Kind::Text;
  Json schema = nullptr;     // JsonSchema
  std::string grammar = {};  // Grammar: GBNF
};

struct GenerationRequest {
  // A chat, as clients write it (text/replies/reply_history.h says what they may), or prompts.
  Json messages = nullptr;                  // null: prompts
  const char* messages_field = "messages";  // where the body had them, for errors
  Json tools = nullptr;
  Json tool_choice = nullptr;  // null: auto
  bool parallel_tool_calls = true;
  bool stream_arguments = true;  // of tool calls, see ReplyOptions
  // The last message is the beginning of the answer, which goes on from there. None: where it is
  // the assistant's, has a text or a thought, and calls nothing.
  std::optional<bool> continues = {};
  ThinkingChoice thinking = {};
  Json template_variables = Json::object();
  std::vector<std::vector<TokenId>> prompts = {};

  SamplingChanges sampling = {};
  std::int64_t max_tokens = 0;           // 0: as many as the context holds
  std::vector<TokenId> end_tokens = {};  // besides the model's own
  std::vector<std::string> stop = {};
  bool stop_in_thoughts = false;  // else stop strings act on what is no thought
  bool ignore_end = false;
  int n = 1;  // answers to each prompt; choice p * n + i is one to prompt p
  std::optional<int> top_logprobs = {};  // so many alternatives of every token; 0: only its own
  bool report_tokens = false;            // TokenEvents also without logprobs
  bool after_sampling = false;           // logprobs are of what tokens are drawn from
  OutputFormat output = {};
};

inline constexpr std::int64_t kMaxChoices = 16, kMaxTopLogprobs = 20;

// ---- events

struct GenerationStarted {  // it has a session; before that it waited
  std::int64_t n_prompt, n_cached;
};
struct PromptProgress {
  std::int64_t n_done, n_prompt, n_cached;  // tokens; cached ones count as done
  double seconds;                           // since it started
};
struct TokenCandidate {
  TokenId id;
  std::string bytes;  // perhaps part of a character
  float log_probability;
};
// Only where tokens or logprobs are asked for; without logprobs its log_probability is 0. Its text
// comes with a later piece, or not at all.
struct TokenEvent {
  TokenCandidate token;
  std::vector<TokenCandidate> top;
};

enum class FinishReason { Stop, Length, ToolCalls, Cancelled, Error };

struct GenerationEnded {
  FinishReason reason = FinishReason::Stop;
  std::optional<std::string> stop = {};  // the stop string that ended it
  std::optional<Error> error = {};
  JobStats stats = {};
  std::int64_t n_reasoning = 0;  // of stats.n_tokens, about
  EngineReading engine = {};     // what the engine did meanwhile, for all of its jobs
};

// The pieces are those of text/replies/reply_parser.h.
using GenerationEvent =
    std::variant<GenerationStarted, PromptProgress, TokenEvent, ContentDelta, ReasoningDelta,
                 ToolCallBegin, ToolCallArguments, ToolCallEnd, GenerationEnded>;

// Called by the engine's thread between passes: it should only write to an exchange and return.
using GenerationSink = std::function<void(int choice, const GenerationEvent&)>;

}  // namespace moeflux
