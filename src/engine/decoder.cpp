#include "engine/decoder.h"

#include <algorithm>
#include <chrono>

#include "base/stopwatch.h"

namespace moeflux {

std::uint64_t Decoder::bytes_needed(const ModelConfig& config, std::int64_t max_batch,
                                    int max_drafts) {
  if (max_drafts == 0) return 0;
  const std::uint64_t rows = static_cast<std::uint64_t>(max_drafts) *
                             static_cast<std::uint64_t>(config.n_vocab) * sizeof(float);
  return rows + (config.mtp ? MtpDrafter::bytes_needed(config, max_batch) : 0);
}

Drafter::Drafter(Engine& engine, const DraftOptions& options) : engine_(engine), options_(options) {
  if (engine.max_drafts() == 0) options_ = {};
  if (options_.mtp && engine.config().mtp)
    mtp_.emplace(engine.forward(), engine.config(), engine.n_sampled(), engine.budget());
  options_.mtp = mtp_.has_value();
}

void Drafter::draft(Session& session, TokenId next, std::int64_t count,
                    std::vector<TokenId>& drafts) {
  if (!is_on()) return;
  const int wanted = options_.depth.value_or(engine_.draft_governor().depth());
  const int depth = static_cast<int>(std::min<std::int64_t>(
      {wanted, count, engine_.max_drafts(), session.max_length() - session.length() - 1,
       engine_.forward().max_tokens() - 1}));
  if (depth <= 0) return;
  if (options_.ngram) ngram_.draft(session.tokens(), next, depth, drafts);
  if (drafts.empty() && mtp_) mtp_->draft(session, next, depth, drafts);
}

float* Drafter::hidden_rows(Session& session, std::int64_t n) {
  return mtp_ ? mtp_->rows(session, n) : nullptr;
}

void Drafter::catch_up(Session& session) {
  if (mtp_) mtp_->catch_up(session);
}

void Drafter::record(std::int64_t n_tokens, double seconds) {
  if (is_on() && !options_.depth) engine_.draft_governor().record(n_tokens, seconds);
}

Decoder::Decoder(Engine& engine, Session& session, const DraftOptions& options)
    : engine_(engine), session_(session), drafter_(engine, options) {
  const auto n_vocab = static_cast<std::size_t>(engine.config().n_vocab);
  const std::size_t draft_rows =
      drafter_.is_on() ? n_vocab * static_cast<std::size_t>(engine.max_drafts()) : 0;
  if (drafter_.is_on())
    reservation_ = engine.budget().reserve("drafts", draft_rows * sizeof(float));
  logits_.resize(n_vocab + draft_rows);
}

Decoder::~Decoder() {
  settle();
}

std::span<const float> Decoder::row(std::size_t i) const {
  const auto n_vocab = static_cast<std::size_t>(engine_.config().n_vocab);
  return std::span(logits_).subspan(i * n_vocab, n_vocab);
}

std::span<const float> Decoder::prefill(std::span<const TokenId> tokens, std::int64_t n_prompt,
                                        const std::function<bool()>& cancelled) {
  settle();
  Engine::PrefillHooks hooks{.cancelled = cancelled, .hidden = {}, .n_prompt = n_prompt};
  hooks.hidden = [this](std::int64_t n) { return drafter_.hidden_rows(session_, n); };
  engine_.prefill(session_, tokens, logits_, hooks);
  return row(0);
}

std::span<const float> Decoder::advance(TokenId token, std::int64_t max_drafts) {
  if (next_ < drafts_.size() && drafts_[next_] == token) {
    ++stats_.accepted;
    return row(++next_);
  }
  tell_drafter();
  settle();
  const auto start = std::chrono::steady_clock::now();
  drafter_.draft(session_, token, max_drafts, drafts_);
  tokens_.assign(1, token);
  tokens_.insert(tokens_.end(), drafts_.begin(), drafts_.end());
  const auto n = static_cast<std::int64_t>(tokens_.size());
  const Span span{.session = &session_,
                  .tokens = tokens_,
                  .logits_of = LogitsOf::EveryToken,
                  .logits = logits_.data(),
                  .hidden = drafter_.hidden_rows(session_, n),
                  .n_drafts = n - 1};
  std::vector<TokenId> drafts;
  drafts.swap(drafts_);  // a pass that fails leaves nothing to take back
  engine_.run({&span, 1});
  drafts_.swap(drafts);
  pass_seconds_ = seconds_since(start);
  ++stats_.passes;
  stats_.drafted += n - 1;
  return row(0);
}

void Decoder::settle() {
  if (!session_.is_poisoned()) session_.take_back(n_unconfirmed());
  drafts_.clear();
  next_ = 0;
}

void Decoder::tell_drafter() {
  if (pass_seconds_ > 0) drafter_.record(static_cast<std::int64_t>(next_) + 1, pass_seconds_);
  pass_seconds_ = 0;
}

}  // namespace moeflux
