// Answers the requests of all dialects with one model. docs/SERVER.md has the whole way of one.
//
// Owns the scheduler's thread and all that goes with sessions: prefixes kept in memory and on
// disk, drafts. Everything here may be called by any thread.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/prefix/session_sync.h"
#include "engine/scheduler/scheduler_sessions.h"
#include "engine/scheduler/scheduler_thread.h"
#include "runtime/sampling/sampling_params.h"
#include "server/http/request_memory.h"
#include "server/service/answer_constraints.h"
#include "server/service/engine_feed.h"
#include "server/service/generation.h"
#include "server/service/generation_prompt.h"
#include "server/service/reading_service.h"
#include "server/service/service_metrics.h"

namespace moeflux {

struct ServiceOptions {
  int n_parallel = 1;            // answers at the same time; the engine was opened for as many
  std::size_t max_waiting = 64;  // requests
  DraftOptions drafts = {};
  std::optional<PrefixStoreOptions> prefix_store = {};
  RequestMemoryPtr memory = {};     // for what answers keep of their requests; null: not counted
  std::uint64_t grammar_bytes = 0;  // for compiled grammars; 0: as many as are useful
};

// Answers that are being given. Dropping it changes nothing; cancel() ends them before the next
// pass. Any thread.
class Generation {
 public:
  void cancel();
  // Lives as long as the answers and whoever may cancel them. Once, by who started it.
  void keep(std::shared_ptr<const void> what) { kept_ = std::move(what); }

 private:
  friend class GenerationService;
  Generation(SchedulerThread& scheduler, RequestMemoryPtr memory)
      : scheduler_(scheduler), memory_(std::move(memory)) {}

  SchedulerThread& scheduler_;
  std::mutex mutex_;  // held while jobs are submitted: no event passes before all are
  std::vector<JobId> jobs_;
  MemoryShare memory_;
  bool refused_ = false;
  std::shared_ptr<const void> kept_;
};

class GenerationService {
 public:
  // `engine` must outlive it and was opened for n_parallel sessions. Throws Error.
  GenerationService(Engine& engine, ServiceOptions options);
  ~GenerationService() { stop(); }
  GenerationService(const GenerationService&) = delete;
  GenerationService& operator=(const GenerationService&) = delete;

  // Checks all of the request, then submits it. Throws HttpError and Error for one that is refused:
  // then the sink is never called. `accepted` is called before the first event, by this thread.
  std::shared_ptr<Generation> start(const GenerationRequest& request, GenerationSink sink,
                                    const std::function<void()>& accepted);

  // What of the schema a request demands decoding does not keep. Once start() has taken it.
  std::vector<std::string> unenforced(const GenerationRequest& request) {
    return constraints_.unenforced(request.output);
  }

  MarkedText render(const GenerationRequest& request) const {
    return prompt_maker_.render(request);
  }

  const Engine& engine() const { return engine_; }  // what never changes of it
  const Tokenizer& tokenizer() const { return engine_.tokenizer(); }
  const ModelFacts& facts() const { return facts_; }
  const SamplingParams& default_sampling() const { return defaults_; }
  const ServiceOptions& options() const { return options_; }
  const PromptMaker& prompt_maker() const { return prompt_maker_; }
  ServiceMetrics& metrics() { return metrics_; }
  // For those who look on while the engine works. They do not keep the model in memory.
  EngineFeed& feed() { return *feed_; }
  std::int64_t created() const { return created_; }  // seconds since 1970
  SchedulerStats stats() const { return scheduler_->stats(); }

  // Texts to be read and not answered.
  ReadingService& readings() { return readings_; }

  // No more requests; returns when all have ended or after so long. False: some go on.
  bool drain(std::chrono::milliseconds at_most);
  // Ends all that go on. Afterwards the engine belongs to the caller again.
  void stop() {
    feed_->stop();
    scheduler_->stop();
  }

 private:
  SamplingParams resolve(const SamplingChanges& changes) const;
  AnswerRequest make_job(const GenerationRequest& request, const GenerationPrompt& prompt) const;

  Engine& engine_;
  ServiceOptions options_;
  ModelFacts facts_;
  SamplingParams defaults_;
  PromptMaker prompt_maker_;
  AnswerConstraints constraints_;
  ServiceMetrics metrics_;
  std::int64_t created_;
  std::optional<PrefixStore> store_;
  std::optional<SessionSync> sync_;
  std::optional<SchedulerDrafts> drafts_;
  ReadingService readings_;
  std::shared_ptr<EngineFeed> feed_;  // shared with workers that are about to write for it
  std::unique_ptr<SchedulerThread> scheduler_;  // last: it uses all of the above
};

}  // namespace moeflux
