#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/model_plan.h"
#include "io/make_reader.h"
#include "io/measure_reader.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

// A shorter pass may be drafts, or a token of each of several sessions.
constexpr std::int64_t kLeastPromptRows = 16;

// Every expert of every layer, such that any prefix of the list has as many of each layer.
void add_evenly(const ExpertIds& ids, std::vector<ExpertKey>& keys) {
  int most = 0;
  for (const int n : ids.n_experts()) most = std::max(most, n);
  for (int expert = 0; expert < most; ++expert) {
    for (int layer = 0; layer < ids.n_layers(); ++layer) {
      if (expert < ids.n_experts(layer)) keys.push_back({layer, expert});
    }
  }
}

// Names the weights. Only containers carry such a name; of other checkpoints it is made from what
// changes when the weights do: their files and sizes.
std::string name_of(const ModelSource& source) {
  if (!source.fingerprint().empty()) return source.fingerprint();
  std::string text = dump_json(source.config());
  for (int i = 0; i < source.n_disk_files(); ++i) {
    text += fmt::format("|{} {}", source.disk_file(i).path(), source.disk_file(i).size());
  }
  return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text))));
}

}  // namespace

ProfileKeeper::ProfileKeeper(const std::string& directory, const ModelSource& source,
                             const ExpertIds& experts)
    : path_(usage_profile_path(directory, name_of(source))),
      loaded_(UsageProfile::load(path_, name_of(source), experts.n_experts())) {}

void ProfileKeeper::save() {
  if (n_tokens_ > 0) loaded_.profile.save(path_);
  n_tokens_ = 0;
}

Engine::Engine(const std::string& path, const EngineOptions& options)
    : Engine(open_source(path), options) {}

Engine::Engine(std::shared_ptr<const ModelSource> source, const EngineOptions& options)
    : source_(std::move(source)),
      model_(describe_model(*source_)),
      context_length_(session_length(options, model_.config)),
      n_checkpoints_(options.n_checkpoints),
      device_(find_backend(options.device).name),
      device_bytes_(device_ceiling(options)),
      budget_(memory_ceiling(options) + device_bytes_),
      reader_options_(options.reader),
      precision_(options.precision),
      kv_type_(options.kv_type),
      fixed_lookahead_(options.lookahead),
      governors_(0, 0) {
  load_text();
  auto reader = make_reader(source_->disk_paths(), options.reader);
  backend_ = std::make_unique<TimedBackend>(make_backend(
      {.isa = options.isa, .n_threads = options.n_threads, .precision = options.precision},
      device_));
  ExpertStore store(source_, model_.index.experts, backend_.get());
  sizes_ = measure_sizes(*source_, model_, store.classes());
  EngineOptions planned = options;
  planned.memory_bytes = budget_.ceiling() - device_bytes_;  // what is free changes
  planned.device = device_;
  planned.device_bytes = device_bytes_;
  plan_ = plan_engine(config(), sizes_, planned, reader->info().memory_bytes);
  if (!plan_.device_fits()) {
    fail(Errc::OutOfMemory,
         "{}: needs at least {} of the memory of {} with a context of {} tokens, but only {} are "
         "allowed; allow more with --vram, shorten the context with -c, or use --device cpu",
         this->path(), format_needed_bytes(plan_.device_floor_bytes()), device_, context_length_,
         format_bytes(plan_.device_ceiling));
  }
  if (!plan_.fits()) {
    fail(Errc::OutOfMemory,
         "{}: needs at least {} of memory with a context of {} tokens, but only {} are allowed; "
         "allow more or shorten the context with -c",
         this->path(), format_needed_bytes(plan_.floor_bytes()), context_length_,
         format_bytes(plan_.ceiling));
  }
  governors_ = LookaheadGovernors(sizes_.top_k(), sizes_.experts_of_a_bank());
  draft_governor_ = DraftGovernor(plan_.max_drafts, plan_.n_slots < plan_.max_slots);

  // Before anything is loaded: measuring takes memory, too.
  const int reads_at_once =
      options.reads_at_once ? *options.reads_at_once : measure_reads_at_once(store);

  program_ = budget_.reserve("program", plan_.program_bytes);
  kernels_ = budget_.reserve("kernels", plan_.kernel_bytes);
  weights_ = std::make_unique<WeightStore>(*source_, model_.index.tensors, *reader, *backend_,
                                           budget_, options.progress);
  // Where all experts fit there is nothing to choose.
  if (!options.profile_directory.empty() && plan_.n_slots < plan_.max_slots) {
    profile_.emplace(options.profile_directory, *source_, store.ids());
  }
  experts_ =
      std::make_unique<ExpertStreamer>(std::move(store), *backend_, budget_,
                                       ExpertStreamer::Options{.cache_bytes = plan_.cache_bytes,
                                                               .min_slots = plan_.min_slots,
                                                               .host_bytes = plan_.tier_bytes,
                                                               .policy = options.cache_policy,
                                                               .reader = std::move(reader),
                                                               .reads_at_once = reads_at_once});
  forward_ = std::make_unique<Forward>(Forward::Parts{.config = &config(),
                                                      .tensors = &weights_->tensors(),
                                                      .backend = backend_.get(),
                                                      .experts = experts_.get(),
                                                      .mixer_slice = plan_.mixer_slice},
                                       budget_, plan_.max_batch, plan_.workspace_bytes);
  backend_->set_poll([this] { experts_->poll(); });
  watch_ = std::make_unique<EngineWatch>(*this);
  experts_->set_on_progress([this] { watch_->tick(); });
  if (options.elastic) pressure_.emplace(default_pressure_policy(read_memory_limits()));
  warm_cache(options);
}

int Engine::measure_reads_at_once(const ExpertStore& store) {
  constexpr int kUsual = 4;
  constexpr std::uint64_t kWorthMeasuring = std::uint64_t{64} << 20;
  if (plan_.n_slots == plan_.max_slots || sizes_.expert_bytes_total < kWorthMeasuring)
    return kUsual;
  MeasureOptions measure;
  measure.record_bytes = store.read_bytes({0, 0});
  measure.max_bytes = 32 * measure.record_bytes;  // of each number of reads
  measure.max_seconds = 0.6;
  measure.memory_bytes = std::size_t{16} << 20;  // some, but on huge pages
  measure.register_memory = false;
  try {
    const BusyDrive drive = keep_drive_busy(source_->disk_paths(), reader_options_, measure);
    drive_speed_ = drive.bytes_per_second;
    return drive.reads_at_once;
  } catch (const Error&) {
    return kUsual;  // the request that needs the bytes reports errors of the drive
  }
}

void Engine::measure_drive_speed() {
  const ExpertStore& store = experts_->store();
  if (drive_speed_ > 0 || store.n_experts_total() == 0) return;
  MeasureOptions measure;
  measure.record_bytes = store.read_bytes({0, 0});
  measure.records_in_flight = experts_->reads_at_once();
  measure.max_seconds = 0.1;
  measure.memory_bytes =
      static_cast<std::size_t>(measure.records_in_flight) * (measure.record_bytes + (1 << 16));
  measure.register_memory = false;
  const auto memory = budget_.reserve("measuring", measure.memory_bytes);
  drive_speed_ = measure_reader(source_->disk_paths(), reader_options_, measure).bytes_per_second();
}

// The experts that were used most come first, then all others if they fit or are asked for.
void Engine::warm_cache(const EngineOptions& options) {
  const ExpertIds& ids = experts_->store().ids();
  std::vector<ExpertKey> keys;
  if (profile_) {
    keys = profile_->profile().hottest(experts_->cache().capacity());
    experts_->learn(profile_->profile());
    experts_->add_observer(&*profile_);
  }
  // What is there already is skipped, what does not fit is never read.
  if (experts_->holds_all() || options.preload) add_evenly(ids, keys);
  experts_->warm(std::move(keys));
  if (!options.preload) return;
  const ExpertCache& cache = experts_->cache();
  experts_->finish_warming([&] {
    if (options.progress) options.progress(cache.held_bytes(), cache.capacity_bytes());
  });
}

void Engine::save_profile() {
  if (profile_) profile_->save();
}

const std::string& Engine::profile_warning() const {
  static const std::string kNone;
  return profile_ ? profile_->warning() : kNone;
}

void Engine::resize_cache() {
  if (!pressure_) return;
  const std::uint64_t bytes = experts_->cache().capacity_bytes();
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const MemoryDecision decision = pressure_->poll(
      now, {.current = bytes,
            .floor = plan_.floor_cache_bytes,
            .ceiling = std::max(plan_.floor_cache_bytes, plan_.cache_bytes - lent_bytes_)});
  if (decision.action == MemoryAction::Hold) return;
  if (decision.action == MemoryAction::Shrink) {
    experts_->set_capacity(bytes - std::min(bytes, decision.bytes));
    ++resizes_.shrunk;
    resizes_.last_cause = decision.cause;
  } else {
    // Whole slots, or a small step would never make room for one.
    experts_->set_capacity(bytes + std::max(decision.bytes, plan_.slot_bytes));
    ++resizes_.grown;
  }
}

void Engine::run(std::span<const Span> batch, ForwardObserver* observer,
                 const std::function<bool()>& cancelled) {
  resize_cache();
  std::int64_t n_rows = 0;
  for (const Span& span : batch) n_rows += std::ssize(span.tokens);
  if (n_rows == 0) return;
  forward_->set_lookahead(fixed_lookahead_ ? *fixed_lookahead_ : governors_.width(n_rows));

  const StreamerStats& stats = experts_->stats();
  const BankStats before = stats.total();
  const StepSample sums{.wall_ns = 0,
                        .wait_ns = before.wait_ns,
                        .misses = before.misses,
                        .bytes_read = stats.bytes_read,
                        .prefetched = stats.prefetched,
                        .prefetches_used = stats.prefetches_used};
  std::uint64_t wall_ns = 0;
  {
    const Stopwatch stopwatch(wall_ns);
    forward_->run(batch, observer, cancelled);
  }
  if (n_rows >= kLeastPromptRows) {
    prompt_rows_ += static_cast<std::uint64_t>(n_rows);
    prompt_ns_ += wall_ns;
  }
  const BankStats after = stats.total();
  governors_.record(n_rows, {.wall_ns = wall_ns,
                             .wait_ns = after.wait_ns - sums.wait_ns,
                             .misses = after.misses - sums.misses,
                             .bytes_read = stats.bytes_read - sums.bytes_read,
                             .prefetched = stats.prefetched - sums.prefetched,
                             .prefetches_used = stats.prefetches_used - sums.prefetches_used});
  watch_->tick();
}

double Engine::seconds_per_prompt_token() const {
  return prompt_rows_ == 0
             ? 0
             : 1e-9 * static_cast<double>(prompt_ns_) / static_cast<double>(prompt_rows_);
}

void Engine::lend_memory(std::uint64_t bytes) {
  const std::uint64_t capacity = experts_->cache().capacity_bytes();
  const std::uint64_t spare = plan_.cache_bytes - std::min(plan_.cache_bytes, lent_bytes_);
  if (spare < plan_.floor_cache_bytes || spare - plan_.floor_cache_bytes < bytes) {
    fail(Errc::OutOfMemory,
         "{} are needed beside what was planned, but the expert cache has {} and needs {}; raise "
         "--ram, or send less at once",
         format_needed_bytes(bytes), format_bytes(spare),
         format_needed_bytes(plan_.floor_cache_bytes));
  }
  lent_bytes_ += bytes;
  experts_->set_capacity(std::min(capacity, plan_.cache_bytes - lent_bytes_));
}

void Engine::take_memory_back(std::uint64_t bytes) {
  lent_bytes_ -= std::min(lent_bytes_, bytes);
  const std::uint64_t capacity = experts_->cache().capacity_bytes();
  // A slot more: what was lent were whole ones.
  const std::uint64_t most = plan_.cache_bytes - std::min(plan_.cache_bytes, lent_bytes_);
  experts_->set_capacity(std::min(capacity + bytes + plan_.slot_bytes, most));
}

Session Engine::new_session() {
  return Session(config(), {context_length_, kv_type_, n_checkpoints_, plan_.max_drafts}, *backend_,
                 budget_);
}

std::vector<float> Engine::prefill(Session& session, std::span<const TokenId> tokens,
                                   const std::function<bool()>& cancelled) {
  std::vector<float> logits(static_cast<std::size_t>(config().n_vocab));
  prefill(session, tokens, logits, {.cancelled = cancelled, .hidden = {}});
  return logits;
}

void Engine::prefill(Session& session, std::span<const TokenId> tokens, std::span<float> logits,
                     const PrefillHooks& hooks) {
  if (tokens.empty()) fail(Errc::BadInput, "the prompt is empty");
  const auto n_free = static_cast<std::size_t>(session.max_length() - session.length());
  if (tokens.size() > n_free) {
    fail(Errc::LimitExceeded,
         "the prompt has {} tokens, but the context has room for {} of {} (raise it with -c)",
         tokens.size(), n_free, session.max_length());
  }
  const std::int64_t prompt =
      prompt_tokens(hooks.n_prompt > 0 ? hooks.n_prompt : std::ssize(tokens));
  while (!tokens.empty()) {
    const std::size_t n = std::min(tokens.size(), static_cast<std::size_t>(forward_->max_tokens()));
    const Span span{.session = &session,
                    .tokens = tokens.first(n),
                    .logits_of = n == tokens.size() ? LogitsOf::LastToken : LogitsOf::None,
                    .logits = logits.data(),
                    .hidden = hooks.hidden ? hooks.hidden(static_cast<std::int64_t>(n)) : nullptr,
                    .prompt_tokens = prompt,
                    .undo_on_failure = session.can_keep_before()};
    run({&span, 1}, nullptr, hooks.cancelled);
    tokens = tokens.subspan(n);
  }
}

const Tokenizer& Engine::tokenizer() const {
  if (tokenizer_ == nullptr) {
    fail(Errc::NotFound,
         "{}: has no tokenizer (tokenizer.json); add the one its model was released with", path());
  }
  return *tokenizer_;
}

const ChatTemplate& Engine::chat_template(bool with_tools) const {
  if (chat_template_ == nullptr) {
    fail(Errc::NotFound,
         "{}: has no chat template (chat_template.jinja); use --raw for plain completion", path());
  }
  return with_tools ? *tool_template_ : *chat_template_;
}

std::int64_t Engine::n_sampled() const {
  const std::int64_t n_vocab = config().n_vocab;
  return tokenizer_ == nullptr
             ? n_vocab
             : std::min<std::int64_t>(n_vocab, static_cast<std::int64_t>(tokenizer_->n_ids()));
}

}  // namespace moeflux
