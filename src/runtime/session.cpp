#include "runtime/session.h"

#include <cstring>

#include "base/error.h"

namespace moeflux {
namespace {

struct StateSizes {
  std::uint64_t first = 0, second = 0;  // bytes of the two buffers of a LayerState
};

StateSizes state_sizes(const MixerSpec& mixer, std::int64_t max_length) {
  const auto floats = [](std::int64_t n) { return static_cast<std::uint64_t>(n) * sizeof(float); };
  if (const auto* a = std::get_if<GatedAttentionSpec>(&mixer)) {
    const std::uint64_t each = floats(max_length * a->n_kv_heads * a->d_head);
    return {each, each};
  }
  if (const auto* d = std::get_if<GatedDeltaSpec>(&mixer)) {
    return {floats(std::int64_t{d->conv_width - 1} * d->conv_dim()),
            floats(std::int64_t{d->n_value_heads} * d->d_key * d->d_value)};
  }
  const auto& m = std::get<MlaSpec>(mixer);
  return {floats(max_length * m.kv_rank), floats(max_length * m.d_rope)};
}

LayerState make_state(const MixerSpec& mixer, std::int64_t max_length) {
  const StateSizes sizes = state_sizes(mixer, max_length);
  AlignedBuffer first(sizes.first), second(sizes.second);
  if (std::holds_alternative<GatedAttentionSpec>(mixer))
    return AttentionState{std::move(first), std::move(second)};
  if (std::holds_alternative<GatedDeltaSpec>(mixer))
    return DeltaState{std::move(first), std::move(second)};
  return LatentState{std::move(first), std::move(second)};
}

}  // namespace

std::uint64_t Session::bytes_needed(const ModelConfig& config, std::int64_t max_length) {
  std::uint64_t total = 0;
  const auto add = [&](const LayerSpec& layer) {
    const StateSizes sizes = state_sizes(layer.mixer, max_length);
    total += sizes.first + sizes.second;
  };
  for (const LayerSpec& layer : config.layers) add(layer);
  if (config.mtp) add(*config.mtp);
  return total;
}

Session::Session(const ModelConfig& config, std::int64_t max_length, MemoryBudget& budget)
    : reservation_(budget.reserve("context", bytes_needed(config, max_length))),
      max_length_(max_length) {
  for (const LayerSpec& layer : config.layers)
    layers_.push_back(make_state(layer.mixer, max_length));
  if (config.mtp) mtp_ = make_state(config.mtp->mixer, max_length);
}

void Session::reset() {
  length_ = 0;
  mtp_length_ = 0;
  in_pass_ = false;
  // Caches are read only below length(); the recurrent state is read always.
  for (LayerState& layer : layers_) {
    if (auto* delta = std::get_if<DeltaState>(&layer)) {
      std::memset(delta->conv.data(), 0, delta->conv.size());
      std::memset(delta->s.data(), 0, delta->s.size());
    }
  }
}

void Session::check(std::int64_t n_tokens) const {
  if (in_pass_)
    fail(Errc::BadInput,
         "an earlier step of this session failed half-way; reset it before going on");
  if (n_tokens > max_length_ - length_) {
    fail(Errc::LimitExceeded,
         "{} tokens do not fit: the context holds {} and {} are used (raise it with -c)", n_tokens,
         max_length_, length_);
  }
}

void Session::begin(std::int64_t n_tokens) {
  check(n_tokens);
  in_pass_ = true;
}

void Session::commit(std::int64_t n_tokens) {
  length_ += n_tokens;
  in_pass_ = false;
}

}  // namespace moeflux
