// Answers of a server that follows OpenAI's chat completions: ours, or another one. Every question
// is one streamed request on a connection of its own; closing that is how a server learns that
// nobody listens any more, which is what happens when a question is cancelled.
#pragma once

#include <optional>
#include <string>

#include "cli/chat/backend.h"
#include "cli/client/http_client.h"

namespace moeflux::cli {

class ServerBackend : public ChatBackend {
 public:
  // Asks the server what it has. `model`: which one to use; empty: the first of its list that is in
  // memory, as far as it says, else the first. Throws Error when the server cannot be reached,
  // refuses or has no model.
  ServerBackend(HttpClient client, std::string model, const std::function<bool()>& cancelled);

  std::string model() const override { return model_; }
  std::int64_t context_length() const override { return context_length_; }
  std::optional<SamplingParams> defaults() const override { return defaults_; }
  ChatReply answer(const ChatQuestion& question, const ChatEvents& events) override;
  std::vector<std::string> models(const std::function<bool()>& cancelled) override;
  void use_model(const std::string& name, const std::function<bool()>& cancelled) override;
  std::string statistics() const override;
  std::string warning() override;

 private:
  Json list(const std::function<bool()>& cancelled);
  void choose_model(const Json& models);
  void read_properties(const std::function<bool()>& cancelled);
  ChatEnd end_of(const std::string& finish_reason, const ChatQuestion& question,
                 const ChatReply& reply) const;

  HttpClient client_;
  std::string where_;  // the server, for messages
  std::string model_;
  std::int64_t context_length_ = 0;
  std::optional<SamplingParams> defaults_;
  bool is_loaded_ = true;  // as far as is known
  std::string warning_;
  Json timings_, moeflux_;  // of the last answer
};

// The body of the request; for tests.
Json chat_request(const ChatQuestion& question, const std::string& model);

}  // namespace moeflux::cli
