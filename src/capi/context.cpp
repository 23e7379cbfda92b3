// Contexts, their sequences, and evaluation.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/params.h"

namespace moeflux::capi {
namespace {

void check_tokens(const Engine& engine, std::span<const TokenId> tokens) {
  const std::int64_t n_vocab = engine.config().n_vocab;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= n_vocab) {
      fail_with(MF_ERROR_BAD_INPUT, "token {} (number {}) is not in the vocabulary of {}",
                tokens[i], i, n_vocab);
    }
  }
}

}  // namespace

const Session* find_sequence(const mf_ctx& ctx, int seq_id) {
  if (seq_id < 0) fail_with(MF_ERROR_BAD_INPUT, "seq_id must not be negative, but is {}", seq_id);
  const auto found = ctx.sequences.find(seq_id);
  return found == ctx.sequences.end() ? nullptr : &found->second;
}

std::size_t sequence_length(const mf_ctx& ctx, int seq_id) {
  const Session* session = find_sequence(ctx, seq_id);
  return static_cast<std::size_t>(session == nullptr ? 0 : session->length());
}

void check_sound(const Session& session, int seq_id, const char* consequence) {
  if (!session.is_poisoned()) return;
  fail_with(MF_ERROR_BROKEN_SEQUENCE, "an earlier evaluation of sequence {} failed half-way; {}",
            seq_id, consequence);
}

Session& sequence(mf_ctx& ctx, int seq_id) {
  if (Session* found = find_sequence(ctx, seq_id)) return *found;
  if (static_cast<int>(ctx.sequences.size()) >= ctx.max_sequences) {
    fail_with(MF_ERROR_LIMIT,
              "sequence {} would be one more than the {} this context may have (max_sequences in "
              "mf_context_params); free one",
              seq_id, ctx.max_sequences);
  }
  Session session = ctx.engine().new_session();
  if (ctx.max_checkpoints != session.max_checkpoints())
    session.set_max_checkpoints(ctx.max_checkpoints);
  return ctx.sequences.emplace(seq_id, std::move(session)).first->second;
}

void check_append(const mf_ctx& ctx, int seq_id, std::optional<std::size_t> position,
                  std::span<const TokenId> tokens) {
  const Session* session = find_sequence(ctx, seq_id);
  if (session != nullptr)
    check_sound(*session, seq_id, "clear it, take it back to a checkpoint, or rebuild it");
  const std::size_t length = sequence_length(ctx, seq_id);
  if (position.value_or(length) != length) {
    fail_with(MF_ERROR_BAD_POSITION,
              "position {} is not the length of sequence {}, which is {}: tokens can only be "
              "appended",
              *position, seq_id, length);
  }
  const auto n_free = static_cast<std::size_t>(ctx.engine().context_length()) - length;
  if (tokens.size() > n_free) {
    fail_with(MF_ERROR_LIMIT,
              "{} tokens do not fit: sequence {} has room for {} of {} (context_length in "
              "mf_model_params)",
              tokens.size(), seq_id, n_free, ctx.engine().context_length());
  }
  check_tokens(ctx.engine(), tokens);
}

std::span<const TokenId> tokens_of(const Engine& engine, const std::int32_t* tokens, std::size_t n,
                                   const char* name) {
  if (n == 0) return {};
  const std::span<const TokenId> given(&need(tokens, name), n);
  check_tokens(engine, given);
  return given;
}

Evaluation::Evaluation(mf_ctx& ctx) : ctx_(ctx), turn_(ctx.model()), before_(counters()) {}

Evaluation::~Evaluation() {
  const mf_stats after = counters();
  for (const auto count :
       {&mf_stats::tokens, &mf_stats::wait_ns, &mf_stats::experts_hit, &mf_stats::experts_missed,
        &mf_stats::bytes_read, &mf_stats::guessed, &mf_stats::guesses_used})
    ctx_.stats.*count += after.*count - before_.*count;
  ctx_.stats.eval_ns += static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count());
}

mf_stats Evaluation::counters() const {
  const StreamerStats& all = ctx_.engine().experts().stats();
  const BankStats banks = all.total();
  mf_stats stats{};
  stats.tokens = all.tokens;
  stats.wait_ns = banks.wait_ns;
  stats.experts_hit = banks.hits;
  stats.experts_missed = banks.misses;
  stats.bytes_read = all.bytes_read;
  stats.guessed = all.prefetched;
  stats.guesses_used = all.prefetches_used;
  return stats;
}

bool Evaluation::stop_before_pass(std::uint64_t done, std::uint64_t total) {
  if (cancelled()) return true;
  return ctx_.progress != nullptr && ctx_.progress(done, total, ctx_.progress_user) != 0;
}

std::vector<float> Evaluation::prefill(Session& session, std::span<const TokenId> tokens) {
  const std::int64_t start = session.length();
  std::int64_t told = -1;
  const auto stop = [&] {  // asked before every layer; progress is made by whole passes
    const std::int64_t done = session.length() - start;
    if (done == std::exchange(told, done)) return cancelled();
    return stop_before_pass(static_cast<std::uint64_t>(done), tokens.size());
  };
  std::vector<float> logits = ctx_.engine().prefill(session, tokens, stop);
  // Everything is done: too late to be cancelled, but a bar should reach its end.
  if (ctx_.progress != nullptr) ctx_.progress(tokens.size(), tokens.size(), ctx_.progress_user);
  return logits;
}

}  // namespace moeflux::capi

using namespace moeflux;
using namespace moeflux::capi;

mf_ctx::mf_ctx(const mf_model& on, const mf_context_params& params)
    : on_model(on),
      max_sequences(params.max_sequences),
      max_checkpoints(params.max_checkpoints < 0 ? on.shared->max_checkpoints
                                                 : params.max_checkpoints) {
  if (max_sequences < 1)
    fail_with(MF_ERROR_BAD_INPUT, "max_sequences must be at least 1, but is {}", max_sequences);
  model().promise(max_sequences);
}

mf_ctx::~mf_ctx() {
  sequences.clear();
  model().release(max_sequences);
}

mf_ctx* mf_context_new(mf_model* model, const mf_context_params* params) {
  return guarded_value<mf_ctx*>(nullptr, [&] {
    return new mf_ctx(need(model, "model"), read_params(params, "mf_context_params"));
  });
}

void mf_context_free(mf_ctx* ctx) {
  delete ctx;
}
void mf_free_model(mf_ctx* ctx) {
  delete ctx;
}

mf_model* mf_context_model(const mf_ctx* ctx) {
  return guarded_value<mf_model*>(
      nullptr, [&] { return const_cast<mf_model*>(&need(ctx, "ctx").on_model); });
}

mf_ctx* mf_init_model(const char* weights_path, const char* manifest_path, const char* vocab_path,
                      const char* experts_dir, int experts_per_tok, int use_2bit) {
  return guarded_value<mf_ctx*>(nullptr, [&] {
    mf_model_params params = defaults<mf_model_params>();
    params.weights_path = weights_path;
    params.manifest_path = manifest_path;
    params.vocab_path = vocab_path;
    params.experts_dir = experts_dir;
    params.experts_per_token = std::max(experts_per_tok, 1);
    params.use_2bit = use_2bit;
    return new mf_ctx({std::make_shared<Model>(params)}, defaults<mf_context_params>());
  });
}

size_t mf_n_vocab(const mf_ctx* ctx) {
  return mf_model_n_vocab(ctx ? &ctx->on_model : nullptr);
}
size_t mf_n_ctx(const mf_ctx* ctx) {
  return mf_model_n_ctx(ctx ? &ctx->on_model : nullptr);
}
int32_t mf_eos(const mf_ctx* ctx) {
  return mf_model_eos(ctx ? &ctx->on_model : nullptr);
}

const char* mf_model_name(const mf_ctx* ctx) {
  return guarded_value<const char*>(nullptr, [&] { return need(ctx, "ctx").model().name.c_str(); });
}

int mf_eval_prompt(mf_ctx* ctx, const int32_t* tokens, size_t n, size_t start_pos, int seq_id,
                   float* logits) {
  return guarded([&] {
    need(ctx, "ctx");
    if (n == 0) return;
    const std::span<const TokenId> prompt(&need(tokens, "tokens"), n);
    Evaluation evaluation(*ctx);
    check_append(*ctx, seq_id, start_pos, prompt);
    const std::vector<float> row = evaluation.prefill(sequence(*ctx, seq_id), prompt);
    if (logits != nullptr) std::copy(row.begin(), row.end(), logits);
  });
}

int mf_eval_token(mf_ctx* ctx, int32_t token, size_t pos, int seq_id, float* logits) {
  return guarded([&] {
    Evaluation evaluation(need(ctx, "ctx"));
    check_append(*ctx, seq_id, pos, {&token, 1});
    if (evaluation.cancelled()) fail(Errc::Cancelled, "cancelled");
    const Span span{.session = &sequence(*ctx, seq_id),
                    .tokens = {&token, 1},
                    .logits_of = logits == nullptr ? LogitsOf::None : LogitsOf::LastToken,
                    .logits = logits};
    ctx->engine().run({&span, 1});
  });
}

void mf_cancel(mf_ctx* ctx) {
  if (ctx != nullptr) ctx->cancelled = true;
}

void mf_cancel_clear(mf_ctx* ctx) {
  if (ctx != nullptr) ctx->cancelled = false;
}

mf_status mf_set_progress(mf_ctx* ctx, mf_progress_fn progress, void* user) {
  return guarded([&] {
    need(ctx, "ctx").progress = progress;
    ctx->progress_user = user;
  });
}

mf_status mf_get_stats(const mf_ctx* ctx, mf_stats* stats) {
  return guarded([&] {
    const mf_stats& ours = need(ctx, "ctx").stats;
    write_result(&need(stats, "stats"), ours, "mf_stats");
  });
}

void mf_reset_stats(mf_ctx* ctx) {
  if (ctx != nullptr) ctx->stats = {};
}

mf_status mf_prefetch_stats(const mf_ctx* ctx, uint64_t* hits, uint64_t* misses) {
  return guarded([&] {
    const mf_stats& stats = need(ctx, "ctx").stats;
    if (hits != nullptr) *hits = stats.experts_hit;
    if (misses != nullptr) *misses = stats.experts_missed;
  });
}

void mf_reset_prefetch_stats(mf_ctx* ctx) {
  if (ctx != nullptr) ctx->stats.experts_hit = ctx->stats.experts_missed = 0;
}
