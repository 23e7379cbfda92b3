// The architectures of GGUF files that are read, each as data: how its tensors are called in the
// words of the family that describes the model, and its config in theirs (decision 0022). What
// llama.cpp's converter changes in the numbers is said here, in config keys and in names, so that
// the families stay the one description of a model.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "source/gguf_fields.h"

namespace moeflux {

// "attn_q" of a block is "self_attn.q_proj" of a layer. A name with its ending (".bias") is that
// tensor alone.
struct GgufName {
  std::string_view gguf, ours;
  bool is_tensor = false;  // a name without an ending that is a tensor's all the same
};

enum class GgufMtp {
  None,
  OwnLayer,  // a layer behind the trunk's, as of DeepSeek and GLM
  Qwen,      // mtp.*
};

struct GgufArchitecture {
  std::string_view name;
  std::span<const GgufName> names;  // of blocks, before those that most share
  GgufMtp mtp = GgufMtp::None;
  // Adds what the family reads beyond common_config().
  void (*describe)(const GgufFields& fields, Json& config);
};

// Throws Unsupported naming the architecture and those that are read.
const GgufArchitecture& gguf_architecture(const GgufHeader& header);

// model_type, sizes, heads and positions: what a config.json would say.
Json gguf_config(const GgufArchitecture& architecture, const GgufFields& fields);

// Our name of a tensor; "" of one that is not needed. Throws Unsupported for one that is not known.
std::string our_name(const GgufArchitecture& architecture, const GgufFields& fields,
                     std::string_view tensor);

// ---- for those who describe one

// Rotation of the leading "rope.dimension_count" dimensions of a head, and its scaling.
void add_rope(const GgufFields& fields, Json& config, int d_head);
void add_experts(const GgufFields& fields, Json& config);
// Of a router in the manner of DeepSeek-V3.
void add_grouped_router(const GgufFields& fields, Json& config);

// By their name in general.architecture.
std::span<const GgufArchitecture> gguf_architectures();

}  // namespace moeflux
