// A backend: memory, and the operations of op.h on it. Calls come from one thread; results are
// complete on return as seen by later calls and by download().
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "backends/op.h"

namespace moeflux {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;

  virtual void embed(const EmbedOp& op) = 0;
  virtual void rms_norm(const RmsNormOp& op) = 0;
  virtual void matmul(const MatmulOp& op) = 0;
  virtual void add(const AddOp& op) = 0;
  virtual void copy(const CopyOp& op) = 0;
  virtual void rope(const RopeOp& op) = 0;
  virtual void attention(const AttentionOp& op) = 0;
  virtual void short_conv(const ShortConvOp& op) = 0;
  virtual void gated_delta(const GatedDeltaOp& op) = 0;
  virtual void latent_attention(const LatentAttentionOp& op) = 0;
  virtual void head_matmul(const HeadMatmulOp& op) = 0;
  virtual void ffn(const FfnOp& op) = 0;
  virtual void combine(const CombineOp& op) = 0;
};

enum class Precision {
  Exact,  // activations stay f32
  Fast,   // products with quantized weights take activations rounded to 8 bits
};

struct BackendOptions {
  std::string_view cpu_isa = {};  // "scalar", "avx2", ...; empty: the best this processor has
  int n_threads = 0;              // 0: every core this process may use
  Precision precision = Precision::Exact;
  std::int64_t max_context = 0;  // longest sequence attention will see: sizes scratch
};

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

}  // namespace moeflux
