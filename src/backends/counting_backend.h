// A backend that computes nothing and counts: run a forward pass against it to learn what memory
// the pass needs (runtime/forward.h). Its buffers have a size and no memory.
#pragma once

#include "backends/backend.h"

namespace moeflux {

class CountingBackend final : public Backend {
 public:
  const WidestOps& widest() const { return widest_; }

  std::string name() const override { return "counting"; }
  std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind, Backing backing) override;
  void discard(const Bytes&) override {}
  WeightFormat layout_for(const WeightFormat& format, WeightUse) const override { return format; }
  std::uint64_t scratch_bytes() const override { return 0; }
  void upload(std::span<const std::byte>, const Bytes&) override {}
  void download(const Bytes&, std::span<std::byte>) override {}
  void copy(const Bytes&, const Bytes&) override {}
  void clear(const Bytes&) override {}
  Mark mark() override { return 0; }
  bool done(Mark) override { return true; }
  void wait(Mark) override {}
  int n_threads() const override { return 1; }
  void parallel_for(std::int64_t, const std::function<void(std::int64_t)>&) override {}
  void set_poll(std::function<void()>) override {}

  void embed(const EmbedOp& op) override;
  void rms_norm(const RmsNormOp&) override {}
  void matmuls(std::span<const MatmulOp> ops) override;
  void add(const AddOp&) override {}
  void clamp(const ClampOp&) override {}
  void softcap(const SoftcapOp&) override {}
  void rope(const RopeOp&) override {}
  void store_kv(const StoreKvOp&) override {}
  void attention(const AttentionOp& op) override;
  void short_conv(const ShortConvOp&) override {}
  void gated_delta(const GatedDeltaOp&) override {}
  void latent_attention(const LatentAttentionOp& op) override;
  void expanded_attention(const ExpandedAttentionOp& op) override;
  void head_matmul(const HeadMatmulOp& op) override;
  void ffns(std::span<const FfnOp> ops) override;
  void route(const RouteOp&) override {}
  void combine(const CombineOp&) override {}

 private:
  void count_head(std::int64_t d_query, std::int64_t d_value, std::int64_t d_latent);

  WidestOps widest_;
};

}  // namespace moeflux
