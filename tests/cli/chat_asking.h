// What tests of chats with servers have in common.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/chat/server_backend.h"

namespace moeflux::test {

using cli::ChatEnd;
using cli::ChatEvents;
using cli::ChatQuestion;
using cli::ChatReply;
using cli::ServerBackend;

inline std::unique_ptr<ServerBackend> connect(const std::string& url, const std::string& model = "",
                                              const std::string& key = "") {
  return std::make_unique<ServerBackend>(cli::HttpClient(cli::parse_server_address(url), key),
                                         model, [] { return false; });
}

inline ChatQuestion ask(const std::string& text, bool thinking = false) {
  ChatQuestion question;
  question.messages = Json::array({{{"role", "user"}, {"content", text}}});
  question.extra["enable_thinking"] = thinking;
  question.sampling.temperature = 0;
  return question;
}

// What was told while it came.
struct Told {
  std::string thought, text;
  std::vector<std::string> calls;
  std::vector<std::pair<std::int64_t, std::int64_t>> prompts;

  ChatEvents events() {
    ChatEvents events;
    events.on_thought = [this](std::string_view piece) { thought += piece; };
    events.on_text = [this](std::string_view piece) { text += piece; };
    events.on_call = [this](const std::string& name) { calls.push_back(name); };
    events.on_prompt = [this](std::int64_t n_new, std::int64_t n_cached) {
      prompts.emplace_back(n_new, n_cached);
    };
    return events;
  }
};

}  // namespace moeflux::test
