// What an answer may be, where a request demands a form of it: JSON, a schema, a grammar, a call of
// a tool, a thought of limited length. Calls that are not demanded are at least well-formed. Made
// for one model; any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "engine/engine.h"
#include "runtime/sampling/token_constraint.h"
#include "server/service/generation.h"
#include "server/service/generation_prompt.h"
#include "text/grammar/grammar_cache.h"
#include "text/replies/reply_tools.h"

namespace moeflux {

// What grammars may take: half of it one that is compiled, a quarter those that are kept, a quarter
// those of the answers being given.
struct GrammarMemory {
  std::uint64_t bytes = 0;  // 0: as many as are useful
  int n_answers = 1;        // at the same time
};

class AnswerConstraints {
 public:
  AnswerConstraints(const Engine& engine, GrammarMemory memory)
      : engine_(engine), memory_(memory) {}

  // For one answer to the prompt; null: everything goes. Throws HttpError for a form that is
  // malformed or that no grammar can keep.
  std::shared_ptr<TokenConstraint> make(const GenerationRequest& request,
                                        const GenerationPrompt& prompt);

  // The keywords of a demanded schema, as paths, that decoding does not keep: text/grammar/
  // schema_check.h says afterwards whether an answer does. For a request that make() took.
  std::vector<std::string> unenforced(const OutputFormat& output);

 private:
  std::shared_ptr<TokenConstraint> of_output(const OutputFormat& output,
                                             const GenerationPrompt& prompt);
  std::shared_ptr<TokenConstraint> of_demanded_call(const GenerationRequest& request,
                                                    const GenerationPrompt& prompt);
  std::shared_ptr<TokenConstraint> of_free_calls(const GenerationRequest& request,
                                                 const GenerationPrompt& prompt);
  std::shared_ptr<TokenConstraint> with_limited_thought(
      const GenerationRequest& request, const GenerationPrompt& prompt,
      std::shared_ptr<TokenConstraint> rest) const;
  struct Calls {  // a ToolGrammar, compiled
    std::shared_ptr<TokenMasks> masks;
    std::string starts_after;
    bool repeats;
  };
  Calls compile(ReplyFormat format, const Json& tools, ToolGrammarOptions options);
  GrammarCache& grammars();
  // The token that ends a thought the prompt has opened.
  std::vector<TokenId> after_thought(const GenerationPrompt& prompt) const;

  const Engine& engine_;
  const GrammarMemory memory_;
  std::mutex mutex_;
  std::optional<GrammarCache> grammars_;  // made when the first is needed: it takes a moment
};

}  // namespace moeflux
