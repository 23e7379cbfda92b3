// From a model's config to where its weights lie: looks up the tensors of every block of every
// layer. A family says as data where its names are not the usual ones, and by overriding where its
// conventions are not.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/model_config.h"
#include "source/model_source.h"

namespace moeflux {

// The first prefix under which `suffix` exists as a tensor; throws NotFound naming the candidates.
std::string find_prefix(const ModelSource& source,
                        std::initializer_list<std::string_view> candidates,
                        std::string_view suffix);

// Of embedding, layers and final norm.
std::string trunk_prefix(const ModelSource& source);
bool has_tensors_below(const ModelSource& source, const std::string& prefix);

// Of the head for multi-token prediction, below its prefix.
struct MtpNames {
  std::string prefix;
  std::string embed_norm;
  std::string hidden_norm;
  std::string fc;
  std::string layer;  // prefix of the decoder layer's tensors
  std::string final_norm;
};

struct TensorNames {
  std::string trunk = "model.";  // prefix of embedding, layers and final norm
  // Below a layer.
  std::string mixer_norm = "input_layernorm", mixer_post_norm = "post_self_attn_layernorm";
  std::string ffn_norm = "post_attention_layernorm", ffn_post_norm = "post_mlp_layernorm";
  std::string attention = "self_attn.";
  std::string delta = "linear_attn.";
  std::string mlp = "mlp.";
  // Below `mlp`.
  std::string router = "gate";
  std::string correction_bias = "gate.e_score_correction_bias";
  std::string router_norm, expert_scales;
  std::string shared = "shared_expert.";
  std::string shared_gate = "shared_expert_gate";
  std::string shared_post_norm, expert_norm, expert_post_norm;
  // Of fused experts gate and up rows alternate, beginning with a gate row, and floats are stored
  // transposed.
  bool gate_up_alternates = false;
  // Of an expert stored by itself.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  MtpNames mtp = {};
};

// A head that is a layer behind the trunk's, as of DeepSeek and GLM. Many checkpoints announce it
// in the config and leave its tensors out.
bool has_mtp_layer(const ModelSource& source, int n_layers);
MtpNames mtp_layer_names(const ModelSource& source, int n_layers);

class IndexReader {
 public:
  // `config` has passed validate(). Both outlive this.
  IndexReader(const ModelSource& source, const ModelConfig& config, TensorNames names);
  virtual ~IndexReader() = default;

  // `head_is_tied`: the embedding serves as the head.
  ModelIndex read(bool head_is_tied) const;

 protected:
  // The weights of an RMS norm of the residual stream, of queries or of keys.
  virtual StoredVector norm(const std::string& name, std::int64_t size) const;

  const ModelSource& source() const { return source_; }

 private:
  using Banks = std::vector<ExpertBank>;

  Layer<Stored> layer(const std::string& prefix, const LayerSpec& spec, Banks& banks) const;
  MtpTensors<Stored> mtp(Banks& banks) const;
  // `p`: the prefix of a layer.
  Attention<Stored> mixer(const std::string& p, const AttentionSpec& spec) const;
  GatedDelta<Stored> mixer(const std::string& p, const GatedDeltaSpec& spec) const;
  LatentAttention<Stored> mixer(const std::string& p, const MlaSpec& spec) const;
  Moe<Stored> moe(const std::string& p, const MoeSpec& spec, Banks& banks) const;
  FeedForward<Stored> ffn(const std::string& p, const DenseFfnSpec& spec) const;

  Linear<Stored> linear(const std::string& module, std::int64_t rows, std::int64_t cols,
                        bool has_bias) const;
  ExpertBank experts(const std::string& mlp, const MoeSpec& spec) const;
  ExpertBank alternating_experts(const std::string& mlp, const MoeSpec& spec) const;
  void read_expert_biases(const std::string& mlp, Moe<Stored>& moe) const;
  StoredVector find_decay(const std::string& p, int n_heads) const;
  void read_delta_inputs(const std::string& p, GatedDelta<Stored>& delta) const;

  const ModelSource& source_;
  const ModelConfig& config_;
  TensorNames names_;
};

}  // namespace moeflux
