#include "runtime/session.h"

#include <cstring>

#include "base/error.h"

namespace moeflux {
namespace {

KvShape shape_of(const GatedAttentionSpec& spec, const SessionShape& session, KvLayout layout) {
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
  if (const auto* a = std::get_if<GatedAttentionSpec>(&mixer)) {
    return shape_of(*a, session, KvLayout::Tiles).bytes() +
           shape_of(*a, session, KvLayout::Rows).bytes();
  }
  if (const auto* d = std::get_if<GatedDeltaSpec>(&mixer)) return conv_bytes(*d) + delta_bytes(*d);
  return shape_of(std::get<MlaSpec>(mixer), session).bytes();
}

LayerState make_state(const MixerSpec& mixer, const SessionShape& session) {
  if (const auto* a = std::get_if<GatedAttentionSpec>(&mixer)) {
    return AttentionState{KvCache(shape_of(*a, session, KvLayout::Tiles)),
                          KvCache(shape_of(*a, session, KvLayout::Rows))};
  }
  if (const auto* d = std::get_if<GatedDeltaSpec>(&mixer))
    return DeltaState{AlignedBuffer(conv_bytes(*d)), AlignedBuffer(delta_bytes(*d))};
  return LatentState{KvCache(shape_of(std::get<MlaSpec>(mixer), session))};
}

}  // namespace

std::uint64_t Session::bytes_needed(const ModelConfig& config, const SessionShape& shape) {
  std::uint64_t total = 0;
  for (const LayerSpec& layer : config.layers) total += state_bytes(layer.mixer, shape);
  if (config.mtp) total += state_bytes(config.mtp->mixer, shape);
  return total;
}

std::uint64_t Session::bytes_per_position(const ModelConfig& config, KvType type) {
  const auto bytes = [&](std::int64_t length) { return bytes_needed(config, {length, type}); };
  return (bytes(2 * kKvLanes) - bytes(kKvLanes)) / kKvLanes;
}

Session::Session(const ModelConfig& config, const SessionShape& shape, MemoryBudget& budget)
    : reservation_(budget.reserve("context", bytes_needed(config, shape))),
      max_length_(shape.max_length) {
  for (const LayerSpec& layer : config.layers) layers_.push_back(make_state(layer.mixer, shape));
  if (config.mtp) mtp_ = make_state(config.mtp->mixer, shape);
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
