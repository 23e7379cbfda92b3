#include "server/service/generation_service.h"

#include <ctime>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "server/http/http.h"
#include "server/http/request_memory.h"
#include "server/service/reply_stream.h"

namespace moeflux {
namespace {

// Short enough to be typed again.
std::uint64_t new_seed() {
  return std::random_device()() & 0xFFFFFFFFu;
}

template <class Given, class Value>
void set(SamplingParams& params, Value SamplingParams::*field, const char* name,
         const std::optional<Given>& given) {
  try {
    params.set(field, given);
  } catch (const Error& error) {
    throw bad_request(fmt::format("{}: {}", name, error.what()), name);
  }
}

// What the answers hold until they end.
std::uint64_t bytes_kept(const GenerationRequest& request,
                         const std::vector<GenerationPrompt>& prompts) {
  constexpr std::uint64_t kTokenCopies = 3;  // of the job, its session and the prefix it keeps
  std::uint64_t bytes = 0;
  for (const std::string& stop : request.stop) bytes += stop.size();
  for (const GenerationPrompt& prompt : prompts) {
    bytes += kTokenCopies * sizeof(TokenId) * prompt.tokens.size();
    bytes += json_bytes(prompt.reply.tools);
  }
  return bytes * static_cast<std::uint64_t>(request.n);
}

}  // namespace

void Generation::cancel() {
  const std::lock_guard lock(mutex_);
  for (const JobId id : jobs_) scheduler_.cancel(id);
}

GenerationService::GenerationService(Engine& engine, ServiceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      facts_(read_facts(engine)),
      defaults_(sampling_defaults(engine.source().generation_config(),
                                  engine.path() + "/generation_config.json")),
      prompt_maker_(engine, options_.memory ? options_.memory->bytes() / 4 : 0),
      constraints_(engine, {.bytes = options_.grammar_bytes, .n_answers = options_.n_parallel}),
      created_(std::time(nullptr)),
      readings_(engine, options_.max_waiting) {
  SchedulerOptions scheduler;
  scheduler.n_sessions = options_.n_parallel;
  scheduler.max_waiting = options_.max_waiting;
  if (options_.prefix_store) {
    store_.emplace(*options_.prefix_store, prefix_identity(engine));
    scheduler.keep_every = store_->options().interval;
  }
  sync_.emplace(engine, store_ ? &*store_ : nullptr);
  add_sync(scheduler.hooks, *sync_);
  if (options_.drafts.any()) {
    drafts_.emplace(engine, options_.drafts);
    drafts_->add_to(scheduler.hooks);
    scheduler.max_drafts = engine.max_drafts();
  }
  metrics_.set_engine(read_engine(engine));
  feed_ = std::make_shared<EngineFeed>(engine, options_.n_parallel);
  scheduler_ = std::make_unique<SchedulerThread>(engine, std::move(scheduler));
  feed_->set_scheduler(*scheduler_);
  readings_.set_scheduler(*scheduler_);
}

bool GenerationService::drain(std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  feed_->stop();
  readings_.close();
  const bool all = scheduler_->drain(at_most);
  const auto left = deadline - std::chrono::steady_clock::now();
  return readings_.wait_until_idle(std::chrono::duration_cast<std::chrono::milliseconds>(left)) &&
         all;
}

SamplingParams GenerationService::resolve(const SamplingChanges& changes) const {
  SamplingParams params = defaults_;
  if (changes.top_k && (*changes.top_k < -1 || *changes.top_k > std::numeric_limits<int>::max()))
    throw bad_request("top_k must be -1 or more (0 or -1: all)", "top_k");
  set(params, &SamplingParams::temperature, "temperature", changes.temperature);
  set(params, &SamplingParams::top_k, "top_k", changes.top_k);
  set(params, &SamplingParams::top_p, "top_p", changes.top_p);
  set(params, &SamplingParams::min_p, "min_p", changes.min_p);
  set(params, &SamplingParams::typical_p, "typical_p", changes.typical_p);
  set(params, &SamplingParams::repetition_penalty, "repetition_penalty",
      changes.repetition_penalty);
  set(params, &SamplingParams::presence_penalty, "presence_penalty", changes.presence_penalty);
  set(params, &SamplingParams::frequency_penalty, "frequency_penalty", changes.frequency_penalty);
  for (const auto& [id, bias] : changes.logit_bias) {
    if (id < 0 || id >= engine_.config().n_vocab) {
      throw bad_request(fmt::format("logit_bias: {} is no token of this model, which has {}", id,
                                    engine_.config().n_vocab),
                        "logit_bias");
    }
  }
  if (!changes.logit_bias.empty())
    set(params, &SamplingParams::logit_bias, "logit_bias", std::optional(changes.logit_bias));
  params.seed = changes.seed.value_or(new_seed());
  return params;
}

AnswerRequest GenerationService::make_job(const GenerationRequest& request,
                                          const GenerationPrompt& prompt) const {
  AnswerRequest job;
  job.prompt = prompt.tokens;
  job.keep_at = prompt.keep_at;
  job.sampling = resolve(request.sampling);
  job.max_tokens = request.max_tokens;
  job.stop = request.stop;
  job.stop_tokens = request.end_tokens;
  job.ignore_end = request.ignore_end;
  job.tells_distribution = request.after_sampling && request.top_logprobs;
  if (prompt.is_chat) {
    const ReplyFormat format =
        prompt.may_call() ? prompt.format : format_without_calls(prompt.format);
    job.shown_special = special_marker_tokens(format, tokenizer());
    const bool may_think = prompt.thinks || prompt.reply.opens_thought;
    if (may_think && !request.stop.empty() && !request.stop_in_thoughts) {
      job.thoughts = ThoughtGate::Options{.format = prompt.format,
                                          .opens_thought = prompt.reply.opens_thought};
    }
  }
  return job;
}

std::shared_ptr<Generation> GenerationService::start(const GenerationRequest& request,
                                                     GenerationSink sink,
                                                     const std::function<void()>& accepted) {
  const std::vector<GenerationPrompt> prompts = prompt_maker_.make(request);
  const std::int64_t n_choices = std::ssize(prompts) * request.n;
  if (request.n < 1 || n_choices > kMaxChoices)
    throw bad_request(fmt::format("n: 1 to {} answers can be given", kMaxChoices), "n");

  const std::shared_ptr<Generation> generation(new Generation(*scheduler_, options_.memory));
  generation->memory_.grow(bytes_kept(request, prompts));
  std::unique_lock lock(generation->mutex_);
  try {
    int choice = 0;
    for (const GenerationPrompt& prompt : prompts) {
      const AnswerRequest job = make_job(request, prompt);
      for (int i = 0; i < request.n; ++i, ++choice) {
        const auto stream = std::make_shared<ReplyStream>(
            engine_, metrics_, prompt,
            ReplyStream::Options{choice, request.top_logprobs, request.report_tokens, request.stop},
            sink);
        AnswerRequest own = job;
        own.constraint = constraints_.make(request, prompt);  // each answer has its own
        own.sampling.seed += static_cast<std::uint64_t>(i);
        generation->jobs_.push_back(scheduler_->submit(
            std::move(own),
            [generation, stream, is_open = false](JobId, const JobEvent& event) mutable {
              if (!is_open) {  // once: afterwards nothing is submitted any more
                const std::lock_guard gate(generation->mutex_);
                is_open = true;
              }
              if (!generation->refused_) stream->take(event);
            }));
      }
    }
  } catch (...) {
    generation->refused_ = true;
    for (const JobId id : generation->jobs_) scheduler_->cancel(id);
    throw;
  }
  accepted();
  return generation;
}

}  // namespace moeflux
