#include "engine/decoder.h"

#include <algorithm>
#include <chrono>

namespace moeflux {

std::uint64_t Decoder::bytes_needed(const ModelConfig& config, std::int64_t max_batch,
                                    int max_drafts) {
  if (max_drafts == 0) return 0;
  const std::uint64_t rows = static_cast<std::uint64_t>(max_drafts) *
                             static_cast<std::uint64_t>(config.n_vocab) * sizeof(float);
  return rows + (config.mtp ? MtpDrafter::bytes_needed(config, max_batch) : 0);
}

Decoder::Decoder(Engine& engine, Session& session, const DraftOptions& options)
    : engine_(engine), session_(session), options_(options) {
  const int max_drafts = engine.max_drafts();
  if (max_drafts == 0) options_ = {};
  options_.mtp = options_.mtp && engine.config().mtp.has_value();
  const std::int64_t n_vocab = engine.config().n_vocab;
  const std::int64_t n_rows = options_.any() ? 1 + max_drafts : 1;
  if (options_.any()) {
    reservation_ = engine.budget().reserve(
        "drafts", static_cast<std::uint64_t>((n_rows - 1) * n_vocab) * sizeof(float));
  }
  if (options_.mtp)
    mtp_.emplace(engine.forward(), engine.config(), engine.n_sampled(), engine.budget());
  logits_.resize(static_cast<std::size_t>(n_rows * n_vocab));
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
  if (mtp_) hooks.hidden = [this](std::int64_t n) { return mtp_->rows(session_, n); };
  engine_.prefill(session_, tokens, logits_, hooks);
  return row(0);
}

void Decoder::catch_up() {
  if (mtp_) mtp_->catch_up(session_);
}

std::span<const float> Decoder::advance(TokenId token) {
  if (next_ < drafts_.size() && drafts_[next_] == token) {
    ++stats_.accepted;
    return row(++next_);
  }
  tell_governor();
  settle();
  const auto start = std::chrono::steady_clock::now();
  make_drafts(token);
  tokens_.assign(1, token);
  tokens_.insert(tokens_.end(), drafts_.begin(), drafts_.end());
  const auto n = static_cast<std::int64_t>(tokens_.size());
  const Span span{.session = &session_,
                  .tokens = tokens_,
                  .logits_of = LogitsOf::EveryToken,
                  .logits = logits_.data(),
                  .hidden = mtp_ ? mtp_->rows(session_, n) : nullptr,
                  .n_drafts = n - 1};
  std::vector<TokenId> drafts;
  drafts.swap(drafts_);  // a pass that fails leaves nothing to take back
  engine_.run({&span, 1});
  drafts_.swap(drafts);
  pass_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++stats_.passes;
  stats_.drafted += n - 1;
  return row(0);
}

void Decoder::settle() {
  if (!session_.is_poisoned()) session_.take_back(n_unconfirmed());
  drafts_.clear();
  next_ = 0;
}

void Decoder::make_drafts(TokenId token) {
  const std::int64_t room = session_.max_length() - session_.length() - 1;
  const int wanted = options_.any() ? options_.depth.value_or(engine_.draft_governor().depth()) : 0;
  const int depth = static_cast<int>(std::min<std::int64_t>(
      {wanted, engine_.max_drafts(), room, engine_.forward().max_tokens() - 1}));
  if (depth <= 0) return;
  if (options_.ngram) ngram_.draft(session_.tokens(), token, depth, drafts_);
  if (drafts_.empty() && mtp_) mtp_->draft(session_, token, depth, drafts_);
}

void Decoder::tell_governor() {
  if (!options_.any() || options_.depth || pass_seconds_ == 0) return;
  engine_.draft_governor().record(static_cast<std::int64_t>(next_) + 1, pass_seconds_);
  pass_seconds_ = 0;
}

}  // namespace moeflux
