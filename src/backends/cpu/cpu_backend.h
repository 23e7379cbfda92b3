// The CPU backend: memory is host memory, operations are done when a call returns, loops run on a
// thread pool, inner loops come from a KernelTable.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/host_ops.h"
#include "backends/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace moeflux::cpu {

// Rows of activations that feed-forwards take at once: bounds the memory of rounded ones, and of
// what a thread computes before it goes to where it belongs.
inline constexpr std::int64_t kRoundedRowsAtOnce = 4096;
inline constexpr std::int64_t kFfnRowsAtOnce = 512;
inline constexpr std::int64_t kMixedFfnRowsAtOnce = 64;

// See BackendInfo.
std::uint64_t scratch_needed(const WidestOps& ops, int n_threads);

// What choosing experts for one token takes; kept between tokens.
struct RouterScratch {
  std::vector<float> scores, choice, groups;
  std::vector<bool> taken;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const BackendOptions& options, const KernelTable& kernels)
      : pool_(options.n_threads),
        kernels_(kernels),
        product_digits_(options.precision == Precision::Exact ? 0 : 2),
        ffn_digits_(options.precision == Precision::Fast ? 1 : product_digits_),
        scratch_(static_cast<std::size_t>(pool_.size())),
        router_scratch_(static_cast<std::size_t>(pool_.size())) {}

  std::string name() const override;

  std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind, Backing backing) override;
  void discard(const Bytes& bytes) override;
  WeightFormat layout_for(const WeightFormat& format, WeightUse use) const override;
  std::uint64_t scratch_bytes() const override;

  void upload(std::span<const std::byte> from, const Bytes& to) override;
  void download(const Bytes& from, std::span<std::byte> to) override;
  void copy(const Bytes& from, const Bytes& to) override;
  void clear(const Bytes& bytes) override;

  Mark mark() override { return 0; }
  bool done(Mark) override { return true; }
  void wait(Mark) override {}

  int n_threads() const override { return pool_.size(); }
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) override;
  void set_poll(std::function<void()> poll) override { pool_.set_poll(std::move(poll)); }

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

 private:
  // Per-thread scratch of at least n floats; grows to the largest size an op has asked for and
  // stays there.
  float* scratch(int worker, std::int64_t n);

  // Whether activations are rounded for products with a weight.
  bool rounds(const WeightView& weight) const {
    return product_digits_ > 0 && has_rounded(weight.format);
  }
  bool rounds(const HostFfn& op) const {  // gate and up take the same rounded rows
    return rounds(op.gate) && op.up.format == op.gate.format && rounds(op.down);
  }
  void matmul_alone(const HostMatmul& op);
  void rounded_matmuls(std::span<const HostMatmul> ops);
  void rounded_ffns(std::span<const HostFfn> ops);  // of the same shapes and formats
  void exact_ffn(const HostFfn& op);                // of at most kFfnRowsAtOnce rows
  // Some of the matrices are interleaved, or in different formats: one product after the other,
  // each as a product of its own would be. At most kMixedFfnRowsAtOnce rows.
  void mixed_ffn(const HostFfn& op);
  // gate <- the activation of n gate and up values, the first of which is value `first` of a row.
  void activate(const HostFfn& op, std::int64_t first, std::int64_t n, float* gate,
                float* up) const;
  const float* gathered_rows(const HostFfn& op);  // its inputs, side by side
  void exact_rows(const WeightView& w, std::int64_t begin, std::int64_t end, const float* x,
                  std::int64_t x_stride, std::int64_t n, float* y, std::int64_t y_stride,
                  float* row) const;

  ThreadPool pool_;
  const KernelTable& kernels_;
  // Digits of 8 bits that activations are rounded to, in feed-forwards and elsewhere; 0: they are
  // not.
  int product_digits_, ffn_digits_;
  std::vector<HostFfn> ffns_;  // of a call
  AlignedBuffer rounded_inputs_, rounded_hidden_;
  std::vector<float> gathered_;         // rows of activations that an op has picked
  std::vector<float> mixed_;            // products of a mixed feed-forward
  std::vector<float> attention_parts_;  // of key blocks, until they are merged
  std::vector<std::vector<float>> scratch_;
  std::vector<RouterScratch> router_scratch_;
};

}  // namespace moeflux::cpu
