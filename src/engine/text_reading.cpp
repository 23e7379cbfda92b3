#include "engine/text_reading.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::int64_t kMostRows = 512;  // of hidden states that the host holds at a time

}  // namespace

TextReading::TextReading(Engine& engine, std::int64_t max_tokens)
    : engine_(engine), max_rows_(std::min({max_tokens, kMostRows, engine.forward().max_tokens()})) {
  const SessionShape shape{.max_length = max_tokens, .kv_type = engine.kv_type()};
  const std::int64_t d = engine.config().d_model;
  const auto row_bytes = static_cast<std::uint64_t>(max_rows_ * d) * sizeof(float);
  const std::uint64_t needed = Session::bytes_needed(engine.config(), shape) + row_bytes;
  MemoryBudget* budget = &engine.budget();
  if (budget->available() < needed) {
    lent_bytes_ = needed;
    engine.lend_memory(needed);
    budget = &lent_.emplace(needed);
  }
  try {
    rows_.emplace(budget->reserve("reading", row_bytes));
    session_ = std::make_unique<Session>(engine.config(), shape, engine.backend(), *budget);
    hidden_.resize(static_cast<std::size_t>(max_rows_ * d));
  } catch (...) {
    session_.reset();
    if (lent_bytes_ > 0) engine.take_memory_back(lent_bytes_);
    throw;
  }
}

TextReading::~TextReading() {
  session_.reset();
  if (lent_bytes_ > 0) engine_.take_memory_back(lent_bytes_);
}

void TextReading::begin(std::span<const TokenId> tokens, ReadingKind kind) {
  MOEFLUX_ASSERT(!tokens.empty());
  session_->reset();
  tokens_ = tokens;
  kind_ = kind;
  const bool is_logits = kind == ReadingKind::Logits;
  const std::int64_t width = is_logits ? engine_.config().n_vocab : engine_.config().d_model;
  result_.assign(static_cast<std::size_t>(width), 0.0f);
  sum_.assign(is_logits ? 0 : result_.size(), 0.0);
}

bool TextReading::step(const std::function<bool()>& cancelled) {
  const auto first = static_cast<std::size_t>(session_->length());
  const std::size_t n = std::min(tokens_.size() - first, static_cast<std::size_t>(max_rows_));
  const bool is_last = first + n == tokens_.size(), is_logits = kind_ == ReadingKind::Logits;
  const Span span{.session = session_.get(),
                  .tokens = tokens_.subspan(first, n),
                  .logits_of = is_logits && is_last ? LogitsOf::LastToken : LogitsOf::None,
                  .logits = is_logits ? result_.data() : nullptr,
                  .hidden = is_logits ? nullptr : hidden_.data(),
                  .prompt_tokens = engine_.prompt_tokens(std::ssize(tokens_))};
  engine_.run({&span, 1}, nullptr, cancelled);
  if (!is_logits) pool(static_cast<std::int64_t>(n));
  if (!is_last) return true;
  if (kind_ == ReadingKind::Mean) {
    for (std::size_t i = 0; i < sum_.size(); ++i)
      result_[i] = static_cast<float>(sum_[i] / static_cast<double>(tokens_.size()));
  }
  if (is_logits) result_.resize(static_cast<std::size_t>(engine_.n_sampled()));
  return false;
}

// In the order of the tokens: the same sums however they were cut into passes.
void TextReading::pool(std::int64_t n_rows) {
  const auto d = static_cast<std::size_t>(engine_.config().d_model);
  const auto n = static_cast<std::size_t>(n_rows);
  if (kind_ == ReadingKind::Last) {
    std::copy_n(hidden_.begin() + static_cast<std::ptrdiff_t>((n - 1) * d), d, result_.begin());
    return;
  }
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t i = 0; i < d; ++i) sum_[i] += static_cast<double>(hidden_[row * d + i]);
  }
}

void normalize(std::span<float> vector) {
  double squares = 0;
  for (const float value : vector)
    squares += static_cast<double>(value) * static_cast<double>(value);
  if (!(squares > 0)) return;
  const double length = std::sqrt(squares);
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
}

}  // namespace moeflux
