// A model, ready to run: opened, checked, its dense weights in memory under one ceiling. The facade everything above
// (commands, server, library API) is a client of. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "families/family.h"
#include "runtime/forward.h"
#include "runtime/session.h"
#include "runtime/weight_store.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace moeflux {

struct EngineOptions {
  int n_threads = 0;                // 0: every core this process may use
  std::int64_t context_length = 0;  // positions of a session; 0: the model's own, at most kDefaultContext
  std::uint64_t memory_bytes = 0;   // ceiling for everything; 0: what the system has available, less a reserve
  std::int64_t max_batch = 512;     // tokens per forward pass
  std::string cpu_isa = {};         // force an instruction set: "scalar", "avx2", ...; empty: the best there is
  LoadProgress progress = {};
};

inline constexpr std::int64_t kDefaultContext = 16384;

class Engine {
 public:
  // Throws Error: what is unsupported, damaged or too large is refused here, by name.
  Engine(const std::string& path, const EngineOptions& options);

  const std::string& path() const { return source_->path(); }
  const ModelSource& source() const { return *source_; }
  const ModelConfig& config() const { return model_.config; }
  const ModelDescription& description() const { return model_; }
  std::int64_t context_length() const { return context_length_; }
  const MemoryBudget& memory() const { return budget_; }
  const ExpertStreamer& experts() const { return *experts_; }
  Backend& backend() { return *backend_; }
  Forward& forward() { return *forward_; }

  // Throws Error(NotFound) when the checkpoint has none.
  const Tokenizer& tokenizer() const;
  const ChatTemplate& chat_template(bool with_tools = false) const;  // some checkpoints have one for each
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_chat_template() const { return chat_template_ != nullptr; }

  // Tokens that end an answer: the union of what every file of the checkpoint and its family say.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }
  // Ids from here on are padding rows of the vocabulary and are never sampled.
  std::int64_t n_sampled() const;

  Session new_session();

  // Feeds tokens in passes of at most max_batch, and returns the logits after the last one: [n_vocab].
  // `cancelled`, when given, is asked between passes; true throws Error(Cancelled).
  std::vector<float> prefill(Session& session, std::span<const TokenId> tokens,
                             const std::function<bool()>& cancelled = {});

 private:
  void load_text();
  void collect_stop_tokens();

  std::shared_ptr<const ModelSource> source_;
  ModelDescription model_;
  std::int64_t context_length_;
  MemoryBudget budget_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExpertStreamer> experts_;
  std::unique_ptr<Forward> forward_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_, tool_template_;
  std::vector<TokenId> stop_tokens_;
};

// Only the text side of a checkpoint: enough to tokenize and to render templates without reading weights.
std::unique_ptr<Tokenizer> load_tokenizer(const ModelSource& source);               // null when there is none
std::unique_ptr<ChatTemplate> load_chat_template(const ModelSource& source, const Tokenizer* tokenizer,
                                                 bool with_tools = false);

}  // namespace moeflux
