#include "runtime/session.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {
namespace {

KvShape shape_of(const AttentionSpec& spec, const SessionShape& session, KvLayout layout) {
  return {.type = session.kv_type,
          .layout = layout,
          .n_heads = spec.n_kv_heads,
          .d = spec.d_head,
          .capacity = session.max_length};
}

KvShape shape_of(const MlaSpec& spec, const SessionShape& session) {
  return {.type = session.kv_type,
          .layout = KvLayout::Rows,
          .n_heads = 1,
          .d = spec.kv_rank + spec.d_rope,
          .capacity = session.max_length};
}

std::uint64_t conv_bytes(const GatedDeltaSpec& spec) {
  return static_cast<std::uint64_t>(spec.conv_width - 1) *
         static_cast<std::uint64_t>(spec.conv_dim()) * sizeof(float);
}

std::uint64_t delta_bytes(const GatedDeltaSpec& spec) {
  return static_cast<std::uint64_t>(spec.n_value_heads) * static_cast<std::uint64_t>(spec.d_key) *
         static_cast<std::uint64_t>(spec.d_value) * sizeof(float);
}

std::uint64_t state_bytes(const MixerSpec& mixer, const SessionShape& session) {
  if (const auto* a = std::get_if<AttentionSpec>(&mixer)) {
    return shape_of(*a, session, KvLayout::Tiles).bytes() +
           shape_of(*a, session, KvLayout::Rows).bytes();
  }
  if (const auto* d = std::get_if<GatedDeltaSpec>(&mixer)) return conv_bytes(*d) + delta_bytes(*d);
  return shape_of(std::get<MlaSpec>(mixer), session).bytes();
}

LayerState make_state(const MixerSpec& mixer, const SessionShape& session, Backend& backend) {
  if (const auto* a = std::get_if<AttentionSpec>(&mixer)) {
    return AttentionState{KvCache(shape_of(*a, session, KvLayout::Tiles), backend),
                          KvCache(shape_of(*a, session, KvLayout::Rows), backend)};
  }
  if (const auto* d = std::get_if<GatedDeltaSpec>(&mixer))
    return DeltaState(conv_bytes(*d), delta_bytes(*d), backend);
  return LatentState{KvCache(shape_of(std::get<MlaSpec>(mixer), session), backend)};
}

}  // namespace

std::uint64_t Session::bytes_needed(const ModelConfig& config, const SessionShape& shape) {
  std::uint64_t total = 0;
  for (const LayerSpec& layer : config.layers) total += state_bytes(layer.mixer, shape);
  if (config.mtp) total += state_bytes(config.mtp->mixer, shape);
  const auto copies = static_cast<std::uint64_t>(shape.n_checkpoints + shape.max_drafts);
  return total + copies * recurrent_bytes(config);
}

std::uint64_t Session::bytes_per_position(const ModelConfig& config, KvType type) {
  const auto bytes = [&](std::int64_t length) { return bytes_needed(config, {length, type}); };
  return (bytes(2 * kKvLanes) - bytes(kKvLanes)) / kKvLanes;
}

std::uint64_t Session::recurrent_bytes(const ModelConfig& config) {
  std::uint64_t total = 0;
  for (const LayerSpec& layer : config.layers) {
    if (const auto* spec = std::get_if<GatedDeltaSpec>(&layer.mixer))
      total += conv_bytes(*spec) + delta_bytes(*spec);
  }
  return total;
}

Session::Session(const ModelConfig& config, const SessionShape& shape, Backend& backend,
                 MemoryBudget& budget)
    : backend_(&backend),
      budget_(&budget),
      reservation_(budget.reserve("context", bytes_needed(config, shape))),
      max_length_(shape.max_length),
      kv_type_(shape.kv_type),
      reserved_checkpoints_(shape.n_checkpoints),
      max_checkpoints_(shape.n_checkpoints) {
  for (const LayerSpec& layer : config.layers) {
    if (std::holds_alternative<GatedDeltaSpec>(layer.mixer)) recurrent_.push_back(n_layers());
    layers_.push_back(make_state(layer.mixer, shape, backend));
  }
  if (config.mtp) mtp_ = make_state(config.mtp->mixer, shape, backend);
  for (int i = 0; i < shape.max_drafts; ++i) before_drafts_.push_back(new_recurrent_state());
}

Session::RecurrentState Session::new_recurrent_state() const {
  RecurrentState state;
  for (const int index : recurrent_) {
    const auto& like = std::get<DeltaState>(layer(index));
    state.emplace_back(like.conv->bytes(), like.s->bytes(), *backend_);
  }
  return state;
}

void Session::reset() {
  // Caches are read only below length(); the recurrent state is read always.
  for (std::size_t i = 0; i < recurrent_.size(); ++i) delta(i).clear(*backend_);
  cut(0);
  mtp_start_ = 0;
  checkpoints_.clear();
}

void Session::cut(std::int64_t length) {
  tokens_.resize(static_cast<std::size_t>(length));
  // The row of position p needs the token at p + 1.
  mtp_length_ = std::clamp<std::int64_t>(length - 1 - mtp_start_, 0, mtp_length_);
  std::erase_if(checkpoints_, [&](const Checkpoint& c) { return c.position > length; });
  n_drafts_ = 0;
  in_pass_ = false;
}

void Session::checkpoint() {
  check(0);
  Checkpoint next{length(), {}};
  const auto same = std::find_if(checkpoints_.begin(), checkpoints_.end(),
                                 [&](const Checkpoint& c) { return c.position == next.position; });
  if (same != checkpoints_.end()) {
    next.state = std::move(same->state);
    checkpoints_.erase(same);
  }
  while (static_cast<int>(checkpoints_.size()) >= max_checkpoints_) {
    const auto oldest = std::find_if(checkpoints_.begin(), checkpoints_.end(),
                                     [](const Checkpoint& c) { return c.position != 0; });
    if (oldest == checkpoints_.end()) break;
    if (next.state.empty()) next.state = std::move(oldest->state);  // its memory is used again
    checkpoints_.erase(oldest);
  }
  if (next.position == 0) {
    next.state.clear();
  } else {
    const bool fits = static_cast<int>(checkpoints_.size()) < max_checkpoints_;
    if (!fits && is_recurrent()) {
      fail(Errc::LimitExceeded, "this session keeps {} checkpoints; allow one more",
           max_checkpoints_);
    }
    if (next.state.empty()) next.state = new_recurrent_state();
    for (std::size_t i = 0; i < recurrent_.size(); ++i) delta(i).copy_to(next.state[i], *backend_);
  }
  checkpoints_.push_back(std::move(next));
}

void Session::forget_checkpoint(std::int64_t position) {
  std::erase_if(checkpoints_, [&](const Checkpoint& c) { return c.position == position; });
}

bool Session::has_checkpoint(std::int64_t position) const {
  return std::any_of(checkpoints_.begin(), checkpoints_.end(),
                     [&](const Checkpoint& c) { return c.position == position; });
}

std::vector<std::int64_t> Session::checkpoints() const {
  std::vector<std::int64_t> positions;
  for (const Checkpoint& checkpoint : checkpoints_) positions.push_back(checkpoint.position);
  return positions;
}

void Session::set_max_checkpoints(int count) {
  if (count < 0) fail(Errc::BadInput, "a session cannot keep {} checkpoints", count);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < recurrent_.size(); ++i) bytes += delta(i).bytes();
  more_checkpoints_ = {};
  const int more = std::max(0, count - reserved_checkpoints_);
  more_checkpoints_ = budget_->reserve("context", static_cast<std::uint64_t>(more) * bytes);
  max_checkpoints_ = count;
}

std::int64_t Session::nearest_rewind(std::int64_t position) const {
  position = std::clamp<std::int64_t>(position, 0, length());
  if (in_pass_ ? !is_recurrent() : position == length() || !is_recurrent()) return position;
  std::int64_t nearest = 0;
  for (const Checkpoint& checkpoint : checkpoints_) {
    if (checkpoint.position <= position) nearest = std::max(nearest, checkpoint.position);
  }
  return nearest;
}

void Session::rewind(std::int64_t position) {
  if (position < 0 || position > length() || nearest_rewind(position) != position) {
    fail(Errc::NotFound,
         "the session cannot go back to position {} of {}: the nearest state it has kept is at {}",
         position, length(), nearest_rewind(position));
  }
  if (is_recurrent() && (in_pass_ || position < length())) {
    const auto from = std::find_if(checkpoints_.begin(), checkpoints_.end(),
                                   [&](const Checkpoint& c) { return c.position == position; });
    for (std::size_t i = 0; i < recurrent_.size(); ++i) {
      if (from != checkpoints_.end() && !from->state.empty()) {
        from->state[i].copy_to(delta(i), *backend_);
      } else {  // position 0
        delta(i).clear(*backend_);
      }
    }
  }
  cut(position);
}

void Session::take_back(std::int64_t n_tokens) {
  if (n_tokens == 0) return;
  MOEFLUX_ASSERT(n_tokens > 0 && n_tokens <= n_drafts_ && !in_pass_);
  if (is_recurrent()) {
    RecurrentState& state = before_drafts_[static_cast<std::size_t>(n_drafts_ - n_tokens)];
    for (std::size_t i = 0; i < recurrent_.size(); ++i) std::swap(delta(i), state[i]);
  }
  cut(length() - n_tokens);
}

void Session::adopt(std::span<const TokenId> tokens, std::int64_t mtp_start,
                    std::int64_t mtp_length) {
  MOEFLUX_ASSERT(static_cast<std::int64_t>(tokens.size()) <= max_length_);
  tokens_.assign(tokens.begin(), tokens.end());
  checkpoints_.clear();
  mtp_start_ = mtp_start;
  mtp_length_ = mtp_length;
  n_drafts_ = 0;
  in_pass_ = false;
}

void Session::check(std::int64_t n_tokens) const {
  if (in_pass_)
    fail(Errc::BadInput,
         "an earlier step of this session failed half-way; reset it before going on");
  if (n_tokens > max_length_ - length()) {
    fail(Errc::LimitExceeded,
         "{} tokens do not fit: the context holds {} and {} are used (raise it with -c)", n_tokens,
         max_length_, length());
  }
}

void Session::begin(std::int64_t n_tokens, std::int64_t n_drafts) {
  check(n_tokens);
  MOEFLUX_ASSERT(n_drafts < n_tokens || n_tokens == 0);
  MOEFLUX_ASSERT(!is_recurrent() || n_drafts <= static_cast<std::int64_t>(before_drafts_.size()));
  n_drafts_ = n_drafts;
  in_pass_ = true;
  n_kept_before_ = 0;
  lost_before_ = false;
}

void Session::abandon() {
  if (!in_pass_ || lost_before_) return;
  for (std::size_t i = 0; i < n_kept_before_; ++i) std::swap(delta(i), before_drafts_[0][i]);
  n_drafts_ = 0;
  in_pass_ = false;
}

DeltaState& Session::before_pass(int layer) {
  MOEFLUX_ASSERT(n_kept_before_ < recurrent_.size() && recurrent_[n_kept_before_] == layer);
  return before_drafts_[0][n_kept_before_++];
}

void Session::commit(std::span<const TokenId> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  in_pass_ = false;
}

DeltaState& Session::before_draft(int layer, std::int64_t i) {
  const auto at = std::lower_bound(recurrent_.begin(), recurrent_.end(), layer);
  return before_drafts_[static_cast<std::size_t>(i)]
                       [static_cast<std::size_t>(at - recurrent_.begin())];
}

void Session::begin_mtp(std::int64_t position) {
  mtp_start_ = position - mtp_length_;
}

}  // namespace moeflux
