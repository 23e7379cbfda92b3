// What Qwen3-Next and its successors Qwen3.5 and Qwen3.6 share: gated attention in some layers and
// the gated delta rule in the others, norms applied as (1 + w), and a head for multi-token
// prediction.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "families/index_reader.h"
#include "model/layer_spec.h"
#include "source/model_source.h"

namespace moeflux::qwen_hybrid {

// Which layers are attention: as listed, else every `full_attention_interval`-th.
std::vector<bool> read_attention_layers(const JsonFields& text, int n_layers);

AttentionSpec read_attention(const JsonFields& text);
GatedDeltaSpec read_delta(const JsonFields& text);

// Of the head for multi-token prediction; empty without one.
std::string mtp_prefix(const ModelSource& source);
MtpNames mtp_names(const ModelSource& source);

// Norms are applied as (1 + w), unless the stored weights contain the +1 already: those of MLX as
// the weights tell, those of GGUF as "norms_include_one" does.
class Reader : public IndexReader {
 public:
  Reader(const ModelSource& source, const ModelConfig& config, const TensorNames& names);

 protected:
  StoredVector norm(const std::string& name, std::int64_t size) const override;

 private:
  std::string mtp_;
  bool all_are_shifted_;  // as the config says
  bool are_shifted_;      // stored norm weights already contain the +1
};

}  // namespace moeflux::qwen_hybrid
