#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {
namespace {

// Left to the rest of the system, and to the small allocations that are not accounted.
constexpr std::uint64_t kReserve = 512u << 20;

std::uint64_t memory_ceiling(const EngineOptions& options) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  const std::uint64_t available = available_memory();
  return available > 2 * kReserve ? available - kReserve : available / 2;
}

std::int64_t session_length(const EngineOptions& options, const ModelConfig& config) {
  if (options.context_length <= 0) return std::min<std::int64_t>(config.context_length, kDefaultContext);
  return std::min<std::int64_t>(options.context_length, config.context_length);
}

}  // namespace

Engine::Engine(const std::string& path, const EngineOptions& options)
    : source_(open_source(path)),
      model_(describe_model(*source_)),
      context_length_(session_length(options, model_.config)),
      budget_(memory_ceiling(options)) {
  const std::int64_t max_batch = std::min(options.max_batch, context_length_);
  ExpertStore store(source_, std::move(model_.index.experts));
  const std::uint64_t fixed = WeightStore::bytes_needed(model_.index.tensors) +
                              Forward::workspace_floats(config(), max_batch) * sizeof(float) +
                              Session::bytes_needed(config(), context_length_);
  // The floor: everything but the experts, and room for those of one token in one layer.
  std::uint64_t floor = fixed;
  for (const LayerSpec& layer : config().layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) {
      floor = std::max(floor, fixed + static_cast<std::uint64_t>(moe->top_k) * store.slot_bytes());
    }
  }
  if (floor > budget_.ceiling()) {
    fail(Errc::OutOfMemory,
         "{}: needs at least {} of memory with a context of {} tokens, but only {} are allowed; allow more or "
         "shorten the context with -c",
         path, format_bytes(floor), context_length_, format_bytes(budget_.ceiling()));
  }

  weights_ = std::make_unique<WeightStore>(*source_, model_.index.tensors, budget_, options.progress);
  backend_ = make_cpu_backend(
      {.cpu_isa = options.cpu_isa, .n_threads = options.n_threads, .max_context = context_length_});
  experts_ = std::make_unique<ExpertStreamer>(std::move(store), budget_, budget_.ceiling() - fixed);
  forward_ = std::make_unique<Forward>(
      Forward::Parts{
          .config = &config(), .tensors = &weights_->tensors(), .backend = backend_.get(), .experts = experts_.get()},
      budget_, max_batch);
  load_text();
}

Session Engine::new_session() { return Session(config(), context_length_, budget_); }

std::vector<float> Engine::prefill(Session& session, std::span<const TokenId> tokens,
                                   const std::function<bool()>& cancelled) {
  if (tokens.empty()) fail(Errc::BadInput, "the prompt is empty");
  const auto n_free = static_cast<std::size_t>(session.max_length() - session.length());
  if (tokens.size() > n_free) {
    fail(Errc::LimitExceeded, "the prompt has {} tokens, but the context has room for {} of {} (raise it with -c)",
         tokens.size(), n_free, session.max_length());
  }
  std::vector<float> logits(static_cast<std::size_t>(config().n_vocab));
  while (!tokens.empty()) {
    if (cancelled && cancelled()) fail(Errc::Cancelled, "cancelled");
    const std::size_t n = std::min(tokens.size(), static_cast<std::size_t>(forward_->max_tokens()));
    const Span span{.session = &session,
                    .tokens = tokens.first(n),
                    .logits_of = n == tokens.size() ? LogitsOf::LastToken : LogitsOf::None,
                    .logits = logits.data()};
    forward_->run({&span, 1});
    tokens = tokens.subspan(n);
  }
  return logits;
}

const Tokenizer& Engine::tokenizer() const {
  if (tokenizer_ == nullptr) {
    fail(Errc::NotFound, "{}: has no tokenizer (tokenizer.json); add the one its model was released with", path());
  }
  return *tokenizer_;
}

const ChatTemplate& Engine::chat_template(bool with_tools) const {
  if (chat_template_ == nullptr) {
    fail(Errc::NotFound, "{}: has no chat template (chat_template.jinja); use --raw for plain completion", path());
  }
  return with_tools ? *tool_template_ : *chat_template_;
}

std::int64_t Engine::n_sampled() const {
  const std::int64_t n_vocab = config().n_vocab;
  return tokenizer_ == nullptr ? n_vocab : std::min<std::int64_t>(n_vocab, static_cast<std::int64_t>(tokenizer_->n_ids()));
}

}  // namespace moeflux
