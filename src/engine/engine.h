// A model, ready to run: opened, checked, its dense weights in memory under one ceiling. The facade
// everything above (commands, server, library API) is a client of. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/timed_backend.h"
#include "base/memory_budget.h"
#include "base/memory_pressure.h"
#include "engine/draft_governor.h"
#include "engine/plan.h"
#include "engine/watch/engine_watch.h"
#include "experts/governor.h"
#include "experts/trace.h"
#include "experts/usage_profile.h"
#include "families/family.h"
#include "io/make_reader.h"
#include "runtime/forward.h"
#include "runtime/session.h"
#include "runtime/weight_store.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct EngineOptions {
  int n_threads = 0;                // 0: one per physical core this process may use
  std::int64_t context_length = 0;  // of a session; 0: the model's own, at most kDefaultContext
  std::string device = {};          // the backend, or "auto"; empty: "cpu"
  std::uint64_t memory_bytes = 0;   // ceiling for everything; 0: what is free, less a reserve
  std::uint64_t device_bytes = 0;   // ceiling for a device's own memory; 0: what is free there
  std::int64_t max_batch = 0;       // tokens per forward pass; 0: as many as pay
  std::uint64_t other_bytes = 0;    // of the ceiling, for what the caller keeps beside the engine
  int n_sessions = 1;               // that may be alive at the same time
  int n_checkpoints = 0;            // positions a session can go back to, see session.h
  int max_drafts = 0;               // tokens of a pass that a session can take back; kAutoDrafts
  Precision precision = Precision::Fine;
  KvType kv_type = KvType::F32;  // of keys and values in a session
  std::string isa = {};          // force an instruction set: "scalar", "avx2", ...; empty: the best

  // Streaming of experts; none of it changes a result.
  std::string cache_policy = std::string(kDefaultPolicy);  // which experts to evict first
  ReaderOptions reader = {};
  std::optional<int> lookahead = {};      // experts per token to prefetch; empty: as it pays
  std::optional<int> reads_at_once = {};  // experts; empty: as many as keep the drive busy
  std::string profile_directory = {};     // where usage profiles are kept; empty: none is used
  bool preload = false;                   // wait until the cache is warm
  bool elastic = true;                    // the cache makes room when memory gets short

  LoadProgress progress = {};
};

inline constexpr std::int64_t kDefaultContext = 16384;

// What pressure on memory did to the cache.
struct CacheResizes {
  int shrunk = 0, grown = 0;
  MemoryCause last_cause = MemoryCause::None;
};

// The usage profile of one model across runs: read when it is opened, told of every request, saved
// when asked. A profile that cannot be used is not an error: the cache just starts cold.
class ProfileKeeper final : public RequestObserver {
 public:
  ProfileKeeper(const std::string& directory, const ModelSource& source, const ExpertIds& experts);

  const UsageProfile& profile() const { return loaded_.profile; }
  const std::string& warning() const { return loaded_.warning; }

  void on_step(int n_tokens) override { n_tokens_ += n_tokens; }
  void on_request(int layer, std::span<const int> experts) override {
    loaded_.profile.record(layer, experts);
  }

  // Writes nothing when nothing was learned. Throws Error(Io).
  void save();

 private:
  std::string path_;
  UsageProfile::Loaded loaded_;
  std::int64_t n_tokens_ = 0;
};

class Engine {
 public:
  // Throws Error: what is unsupported, damaged or too large is refused here, by name.
  Engine(const std::string& path, const EngineOptions& options);
  Engine(std::shared_ptr<const ModelSource> source, const EngineOptions& options);

  const std::string& path() const { return source_->path(); }
  const ModelSource& source() const { return *source_; }
  const ModelConfig& config() const { return model_.config; }
  const ModelDescription& description() const { return model_; }
  std::int64_t context_length() const { return context_length_; }
  const MemoryBudget& memory() const { return budget_; }
  MemoryBudget& budget() { return budget_; }
  const WeightStore& weights() const { return *weights_; }
  const ExpertStreamer& experts() const { return *experts_; }
  ExpertStreamer& experts() { return *experts_; }
  const LookaheadGovernor& governor() const { return governors_.last(); }
  int max_drafts() const { return plan_.max_drafts; }
  DraftGovernor& draft_governor() { return draft_governor_; }
  const DraftGovernor& draft_governor() const { return draft_governor_; }
  const CacheResizes& cache_resizes() const { return resizes_; }
  std::optional<int> fixed_lookahead() const { return fixed_lookahead_; }
  // What may be seen of all this from other threads.
  EngineWatch& watch() { return *watch_; }
  // Bytes per second at which the drive brings experts, as far as it was measured: 0 where they all
  // fit into memory, unless somebody has asked.
  double drive_speed() const { return drive_speed_; }
  void measure_drive_speed();
  const MemoryPlan& plan() const { return plan_; }
  Precision precision() const { return precision_; }
  // What Span::prompt_tokens is for a prompt of n tokens: with exact arithmetic, all tokens are
  // computed alike.
  std::int64_t prompt_tokens(std::int64_t n) const {
    return precision_ == Precision::Exact ? 0 : n;
  }
  KvType kv_type() const { return kv_type_; }
  const std::string& device() const { return device_; }  // the backend's name in the registry
  const ModelSizes& sizes() const { return sizes_; }
  const ReaderOptions& reader_options() const { return reader_options_; }
  Backend& backend() { return *backend_; }
  std::span<const OpTime> op_times() const { return backend_->times(); }
  Forward& forward() { return *forward_; }
  const Forward& forward() const { return *forward_; }

  // forward().run(), with everything that adapts to the machine done around it: lookahead and the
  // size of the cache. None of that changes a result.
  void run(std::span<const Span> batch, ForwardObserver* observer = nullptr,
           const std::function<bool()>& cancelled = {});

  // What a token of a prompt has taken to read so far, on average; 0: none was read.
  double seconds_per_prompt_token() const;

  // Throws Error(NotFound) when the checkpoint has none.
  const Tokenizer& tokenizer() const;
  const ChatTemplate& chat_template(
      bool with_tools = false) const;  // some checkpoints have one for each
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_chat_template() const { return chat_template_ != nullptr; }

  // Tokens that end an answer: the union of what every file of the checkpoint and its family say.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }
  // Ids from here on are padding rows of the vocabulary and are never sampled.
  std::int64_t n_sampled() const;

  Session new_session();

  // Room that was not planned: the expert cache makes so many bytes of it, and has them again when
  // they are taken back. Throws Error(OutOfMemory) where its floor does not allow it.
  void lend_memory(std::uint64_t bytes);
  void take_memory_back(std::uint64_t bytes);

  // Keeps what was learned about the use of experts for the next start. Throws Error(Io).
  void save_profile();
  const std::string& profile_warning() const;  // why an old profile was not used; empty: it was

  struct PrefillHooks {
    // Asked before every layer; true throws Cancelled. The session then holds what whole passes
    // have read, or where it is recurrent and keeps no copies (max_drafts 0) is poisoned.
    std::function<bool()> cancelled;
    std::function<float*(std::int64_t)> hidden;  // where a pass of n tokens leaves its hidden rows
    std::int64_t n_prompt = 0;  // of the prompt the tokens are part of; 0: they are all of it
  };
  // Feeds tokens in passes of at most max_batch; `logits`, [n_vocab], are those after the last one.
  void prefill(Session& session, std::span<const TokenId> tokens, std::span<float> logits,
               const PrefillHooks& hooks);
  std::vector<float> prefill(Session& session, std::span<const TokenId> tokens,
                             const std::function<bool()>& cancelled = {});

 private:
  void load_text();
  void collect_stop_tokens();
  int measure_reads_at_once(const ExpertStore& store);
  void warm_cache(const EngineOptions& options);
  void resize_cache();

  std::shared_ptr<const ModelSource> source_;
  ModelDescription model_;
  std::int64_t context_length_;
  int n_checkpoints_;
  std::string device_;
  std::uint64_t device_bytes_;  // 0: the device has no memory of its own
  MemoryBudget budget_;
  ReaderOptions reader_options_;
  Precision precision_;
  KvType kv_type_;
  ModelSizes sizes_;
  MemoryPlan plan_;
  MemoryBudget::Reservation program_, kernels_;
  std::unique_ptr<TimedBackend> backend_;  // before all that lies in its memory
  std::unique_ptr<WeightStore> weights_;
  std::optional<ProfileKeeper> profile_;  // before the streamer, which tells it of every request
  std::unique_ptr<ExpertStreamer> experts_;
  std::unique_ptr<Forward> forward_;
  std::unique_ptr<EngineWatch> watch_;
  double drive_speed_ = 0;
  std::optional<int> fixed_lookahead_;
  LookaheadGovernors governors_;
  std::uint64_t prompt_rows_ = 0, prompt_ns_ = 0;
  DraftGovernor draft_governor_;
  std::optional<MemoryPressureMonitor> pressure_;
  CacheResizes resizes_;
  std::uint64_t lent_bytes_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_, tool_template_;
  std::vector<TokenId> stop_tokens_;
};

// Only the text side of a checkpoint: enough to tokenize and to render templates without reading
// weights.
std::unique_ptr<Tokenizer> load_tokenizer(const ModelSource& source);  // null when there is none
std::unique_ptr<ChatTemplate> load_chat_template(const ModelSource& source,
                                                 const Tokenizer* tokenizer,
                                                 bool with_tools = false);

}  // namespace moeflux
