// The CPU backend: memory is host memory, loops run on a thread pool, inner loops come from a
// KernelTable.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace moeflux::cpu {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const BackendOptions& options, const KernelTable& kernels)
      : pool_(options.n_threads),
        kernels_(kernels),
        fast_(options.precision == Precision::Fast),
        scratch_(static_cast<std::size_t>(pool_.size())) {}

  std::string name() const override;

  void embed(const EmbedOp& op) override;
  void rms_norm(const RmsNormOp& op) override;
  void matmul(const MatmulOp& op) override;
  void add(const AddOp& op) override;
  void copy(const CopyOp& op) override;
  void rope(const RopeOp& op) override;
  void attention(const AttentionOp& op) override;
  void short_conv(const ShortConvOp& op) override;
  void gated_delta(const GatedDeltaOp& op) override;
  void latent_attention(const LatentAttentionOp& op) override;
  void head_matmul(const HeadMatmulOp& op) override;
  void ffn(const FfnOp& op) override;
  void combine(const CombineOp& op) override;

 private:
  // Per-thread scratch of at least n floats; grows to the largest size an op has asked for and
  // stays there.
  float* scratch(int worker, std::int64_t n);

  // Rows of activations, rounded for a weight; they stay until the next call.
  struct Rounded {
    Q8Layout layout;
    const std::byte* rows;
  };
  Rounded round_rows(const WeightView& weight, const float* x, std::int64_t x_stride,
                     std::int64_t n, const std::int32_t* rows_in);
  bool fast(const WeightView& weight) const { return fast_ && has_q8(weight.format); }
  void fast_matmul(const MatmulOp& op);
  void fast_ffn(const FfnOp& op);
  void exact_ffn(const FfnOp& op);

  ThreadPool pool_;
  const KernelTable& kernels_;
  bool fast_;
  AlignedBuffer rounded_;
  std::vector<std::vector<float>> scratch_;
};

}  // namespace moeflux::cpu
