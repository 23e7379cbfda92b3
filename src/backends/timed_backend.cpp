#include "backends/timed_backend.h"

#include "base/stopwatch.h"

namespace moeflux {

template <class Call>
void TimedBackend::timed(Kind kind, Call call) {
  OpTime& time = times_[kind];
  ++time.calls;
  const Stopwatch stopwatch(time.ns);
  call();
}

void TimedBackend::embed(const EmbedOp& op) {
  timed(Embed, [&] { inner_->embed(op); });
}
void TimedBackend::rms_norm(const RmsNormOp& op) {
  timed(RmsNorm, [&] { inner_->rms_norm(op); });
}
void TimedBackend::matmuls(std::span<const MatmulOp> ops) {
  timed(Matmul, [&] { inner_->matmuls(ops); });
}
void TimedBackend::add(const AddOp& op) {
  timed(Add, [&] { inner_->add(op); });
}
void TimedBackend::clamp(const ClampOp& op) {
  timed(Clamp, [&] { inner_->clamp(op); });
}
void TimedBackend::softcap(const SoftcapOp& op) {
  timed(Softcap, [&] { inner_->softcap(op); });
}
void TimedBackend::rope(const RopeOp& op) {
  timed(Rope, [&] { inner_->rope(op); });
}
void TimedBackend::store_kv(const StoreKvOp& op) {
  timed(StoreKv, [&] { inner_->store_kv(op); });
}
void TimedBackend::attention(const AttentionOp& op) {
  timed(Attention, [&] { inner_->attention(op); });
}
void TimedBackend::short_conv(const ShortConvOp& op) {
  timed(ShortConv, [&] { inner_->short_conv(op); });
}
void TimedBackend::gated_delta(const GatedDeltaOp& op) {
  timed(GatedDelta, [&] { inner_->gated_delta(op); });
}
void TimedBackend::latent_attention(const LatentAttentionOp& op) {
  timed(LatentAttention, [&] { inner_->latent_attention(op); });
}
void TimedBackend::expanded_attention(const ExpandedAttentionOp& op) {
  timed(LatentAttention, [&] { inner_->expanded_attention(op); });
}
void TimedBackend::head_matmul(const HeadMatmulOp& op) {
  timed(HeadMatmul, [&] { inner_->head_matmul(op); });
}
void TimedBackend::ffns(std::span<const FfnOp> ops) {
  timed(Ffns, [&] { inner_->ffns(ops); });
}
void TimedBackend::experts(const ExpertsOp& op) {
  timed(Ffns, [&] { inner_->experts(op); });
}
void TimedBackend::route(const RouteOp& op) {
  timed(Route, [&] { inner_->route(op); });
}
void TimedBackend::combine(const CombineOp& op) {
  timed(Combine, [&] { inner_->combine(op); });
}

}  // namespace moeflux
