// Answers of a model in this process. One session of the engine lives as long as the chat: each
// turn goes on from the longest prefix that the session, one of its checkpoints or the prefix
// store holds, so that only what is new is read.
#pragma once

#include <memory>
#include <optional>

#include "cli/chat/backend.h"
#include "cli/prefix_session.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/replies/reply_format.h"

namespace moeflux::cli {

class LocalBackend : public ChatBackend {
 public:
  // Turns that can be taken back without reading the chat again, and the end of the system message.
  // For the options of the engine: without them there is still the store.
  static constexpr int kCheckpoints = 4;

  LocalBackend(std::unique_ptr<Engine> engine, const PrefixOptions& prefix, DraftOptions drafts);

  std::string model() const override { return engine_->path(); }
  std::int64_t context_length() const override { return engine_->context_length(); }
  std::optional<SamplingParams> defaults() const override { return defaults_; }
  ChatReply answer(const ChatQuestion& question, const ChatEvents& events) override;
  void between_turns(const std::function<bool()>& cancelled) override;
  std::string statistics() const override;
  std::string warning() override;

  Engine& engine() { return *engine_; }

 private:
  struct Prompt {
    ChatRequest chat;
    std::vector<TokenId> tokens;
    bool opens_thought = false;
  };
  Prompt encode(const ChatQuestion& question);
  void check_length(const Prompt& prompt) const;
  const ReplyProfile& profile(bool with_tools);

  std::unique_ptr<Engine> engine_;
  DraftOptions drafts_;
  bool read_ahead_;
  SamplingParams defaults_;
  Session session_;
  PrefixSession prefix_;
  bool has_warned_ = false;
  std::optional<ReplyProfile> profile_, tool_profile_;
  std::optional<GenerateResult> last_;
  std::optional<Prompt> last_prompt_;  // of a complete answer, to read ahead from
  std::string last_answer_;
};

}  // namespace moeflux::cli
