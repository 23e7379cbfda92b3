// Who answers in a chat. The chat program knows conversations, terminals and tools; a backend turns
// a conversation into one reply. Called from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/options/sampling_options.h"
#include "text/replies/reply_parser.h"

namespace moeflux::cli {

struct ChatQuestion {
  Json messages;                // system, user, assistant, tool: OpenAI's form
  Json tools = nullptr;         // OpenAI's form, or null
  Json extra = Json::object();  // more variables of the template, such as enable_thinking
  SamplingOptions sampling;
  std::int64_t max_tokens = 0;  // 0: what the context holds
};

struct ChatEvents {
  std::function<void(std::string_view)> on_thought, on_text;
  std::function<void(const std::string& name)> on_call;  // the model begins to write a call
  // What of the prompt must be read, and what need not be.
  std::function<void(std::int64_t n_new, std::int64_t n_cached)> on_prompt;
  std::function<bool()> cancelled;
};

enum class ChatEnd { Complete, Length, ContextFull, Stopped };

struct ChatReply {
  Reply reply;
  ChatEnd end = ChatEnd::Complete;
  // What it took. A backend that does not know a number leaves it at 0.
  std::int64_t n_prompt = 0, n_cached = 0, n_answer = 0;
  double first_token_seconds = 0, prompt_seconds = 0, answer_seconds = 0;
  std::uint64_t hits = 0, misses = 0;  // experts found in memory while answering, and not
};

class ChatBackend {
 public:
  virtual ~ChatBackend() = default;

  virtual std::string model() const = 0;            // its name
  virtual std::int64_t context_length() const = 0;  // 0: not known
  // What applies where the user sets nothing; nothing: not known.
  virtual std::optional<SamplingParams> defaults() const = 0;
  // Throws Error when there is no reply: the conversation is too long, the template refuses it, ...
  virtual ChatReply answer(const ChatQuestion& question, const ChatEvents& events) = 0;
  // Work for the next turn that may be dropped at any time.
  virtual void between_turns(const std::function<bool()>& /*cancelled*/) {}
  // What use_model() may be given, the one in use among them; empty: not known.
  virtual std::vector<std::string> models(const std::function<bool()>& /*cancelled*/) { return {}; }
  // Answers come from another model from now on. Throws Error, and nothing has changed.
  virtual void use_model(const std::string& name, const std::function<bool()>& cancelled);
  virtual std::string statistics() const { return ""; }  // lines for /stats
  virtual std::string warning() { return ""; }           // a remark for the user, once
};

}  // namespace moeflux::cli
