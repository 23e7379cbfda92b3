// A backend that passes everything on to another and measures the time of each kind of operation.
// It reads the clock twice per operation, which takes some tens of nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backends/backend.h"

namespace moeflux {

struct OpTime {
  std::string_view name;
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;
};

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::span<const OpTime> times() const { return times_; }  // always the same operations

  std::string name() const override { return inner_->name(); }
  std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind, Backing backing) override {
    return inner_->allocate(bytes, kind, backing);
  }
  void discard(const Bytes& bytes) override { inner_->discard(bytes); }
  WeightFormat layout_for(const WeightFormat& format, WeightUse use) const override {
    return inner_->layout_for(format, use);
  }
  std::uint64_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  void upload(std::span<const std::byte> from, const Bytes& to) override {
    inner_->upload(from, to);
  }
  void download(const Bytes& from, std::span<std::byte> to) override { inner_->download(from, to); }
  void copy(const Bytes& from, const Bytes& to) override { inner_->copy(from, to); }
  void clear(const Bytes& bytes) override { inner_->clear(bytes); }
  Mark transfer(const Bytes& from, const Bytes& to) override { return inner_->transfer(from, to); }
  bool transferred(Mark mark) override { return inner_->transferred(mark); }
  void wait_for_transfer(Mark mark) override { inner_->wait_for_transfer(mark); }
  Mark mark() override { return inner_->mark(); }
  bool done(Mark mark) override { return inner_->done(mark); }
  void wait(Mark mark) override { inner_->wait(mark); }
  void time_kernels() override { inner_->time_kernels(); }
  std::vector<KernelTime> kernel_times() override { return inner_->kernel_times(); }

  int n_threads() const override { return inner_->n_threads(); }
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) override {
    inner_->parallel_for(n, body);
  }
  void set_poll(std::function<void()> poll) override { inner_->set_poll(std::move(poll)); }

  void embed(const EmbedOp& op) override;
  void rms_norm(const RmsNormOp& op) override;
  void matmuls(std::span<const MatmulOp> ops) override;
  void add(const AddOp& op) override;
  void clamp(const ClampOp& op) override;
  void softcap(const SoftcapOp& op) override;
  void rope(const RopeOp& op) override;
  void store_kv(const StoreKvOp& op) override;
  void attention(const AttentionOp& op) override;
  void short_conv(const ShortConvOp& op) override;
  void gated_delta(const GatedDeltaOp& op) override;
  void latent_attention(const LatentAttentionOp& op) override;
  void expanded_attention(const ExpandedAttentionOp& op) override;
  void head_matmul(const HeadMatmulOp& op) override;
  void ffns(std::span<const FfnOp> ops) override;
  void route(const RouteOp& op) override;
  void combine(const CombineOp& op) override;
  bool drives_experts() const override { return inner_->drives_experts(); }
  void experts(const ExpertsOp& op) override;  // counted as feed-forwards

 private:
  enum Kind : std::size_t {
    Embed,
    RmsNorm,
    Matmul,
    Add,
    Clamp,
    Softcap,
    Rope,
    StoreKv,
    Attention,
    ShortConv,
    GatedDelta,
    LatentAttention,
    HeadMatmul,
    Ffns,
    Route,
    Combine,
    kKinds
  };

  template <class Call>
  void timed(Kind kind, Call call);

  std::unique_ptr<Backend> inner_;
  std::array<OpTime, kKinds> times_{{{"embed"},
                                     {"rms_norm"},
                                     {"matmul"},
                                     {"add"},
                                     {"clamp"},
                                     {"softcap"},
                                     {"rope"},
                                     {"store_kv"},
                                     {"attention"},
                                     {"short_conv"},
                                     {"gated_delta"},
                                     {"latent_attention"},
                                     {"head_matmul"},
                                     {"ffn"},
                                     {"route"},
                                     {"combine"}}};
};

}  // namespace moeflux
