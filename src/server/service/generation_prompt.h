// From the messages of a request to the tokens of its prompt, and how its reply is to be read. Uses
// only parts of an engine that never change: any thread may use it.
#pragma once

#include <cstdint>
#include <vector>

#include "server/service/generation.h"
#include "text/replies/reply_format.h"

namespace moeflux {

struct GenerationPrompt {
  std::vector<TokenId> tokens = {};
  std::vector<std::int64_t> keep_at = {};  // see AnswerRequest
  ReplyFormat format = ReplyFormat::Plain;
  ReplyOptions reply = {};
  ToolChoice tool_choice = {};
  // Where the answer goes on from a message: what that had written of the reply, as its parser
  // reads it and as a demanded form begins.
  std::string begun = {}, form_begun = {};
  bool is_chat = false;  // its reply is taken apart
  bool thinks = false;   // the model may think, whether the prompt opens a thought or not

  bool may_call() const { return reply.tools.is_array() && !reply.tools.empty(); }
};

class PromptMaker {
 public:
  // `engine` must outlive this. `render_bytes`: what one rendering may hold at a time; 0: as much
  // as is useful.
  explicit PromptMaker(const Engine& engine, std::uint64_t render_bytes = 0);

  // One for every prompt of the request; of a chat there is one. Throws HttpError and Error: what
  // is malformed, 501 for a chat without a template, and a prompt longer than the context with both
  // numbers.
  std::vector<GenerationPrompt> make(const GenerationRequest& request) const;

  // What the template makes of the chat.
  MarkedText render(const GenerationRequest& request) const;

  // Checks the texts in a field of a body: one that cannot fit is refused before its tokens are
  // counted, which would take a worker seconds and twenty times the memory.
  void check_texts(const Json& body, const char* field = "prompt") const;

  // Refuses what is empty and what the context does not hold.
  void check_length(std::size_t n_tokens, const std::string& field = "prompt") const;

  const ReplyProfile& profile(bool with_tools) const {
    return with_tools ? tool_profile_ : profile_;
  }

 private:
  struct Chat {
    ChatRequest request;
    Json tools;  // that may be called
    ToolChoice choice;
    bool continues = false;  // the last message
  };
  Chat make_chat(const GenerationRequest& request) const;
  GenerationPrompt make_chat_prompt(const GenerationRequest& request) const;
  void check_bytes(std::size_t n_bytes) const;

  MarkedText render(const Chat& chat, const char* messages_field) const;
  MarkedText render_begun(const Chat& chat, const char* messages_field) const;
  void set_begun(Chat chat, GenerationPrompt& prompt) const;

  const Engine& engine_;
  jinja::RenderOptions rendering_;
  std::size_t longest_token_ = 1;  // in bytes
  ReplyProfile profile_, tool_profile_;
};

}  // namespace moeflux
