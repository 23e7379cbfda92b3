// What the families share: looking a config field up in the places exporters put it, and tensor
// naming.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "model/layer_spec.h"
#include "model/blocks.h"
#include "source/model_source.h"

namespace moeflux {

using Keys = std::span<const std::string_view>;
bool contains(Keys keys, std::string_view key);

// The object that holds the text model's sizes: `text_config` of a multimodal wrapper, else the
// config itself.
JsonFields text_config(const ModelSource& source);

// Throws Unsupported unless the key is absent, null or equal to one of the values.
void require_one_of(const JsonFields& fields, std::string_view key,
                    std::initializer_list<std::string_view> values);
// Throws Unsupported when the boolean is set the other way.
void require_boolean(const JsonFields& fields, std::string_view key, bool value);
// Throws when the integer is there and another one.
void require_integer(const JsonFields& fields, std::string_view key,
                     std::initializer_list<std::int64_t> values);

// The first prefix under which `suffix` exists as a tensor; throws NotFound naming the candidates.
std::string find_prefix(const ModelSource& source,
                        std::initializer_list<std::string_view> candidates,
                        std::string_view suffix);

// The routed experts below `mlp` ("model.layers.3.mlp."), in whichever form the checkpoint stores
// them: stacked
// (`switch_mlp.*`), fused (`experts.gate_up_proj`, gate rows first) or one by one
// (`experts.0.gate_proj`).
ExpertBank find_experts(const ModelSource& source, const std::string& mlp, const MoeSpec& moe,
                        int d_model);

// A small unquantized matrix [rows, cols], in memory as one vector [cols, rows].
StoredVector find_transposed(const ModelSource& source, const std::string& module,
                             std::int64_t rows, std::int64_t cols);

DenseFfnTensors<Stored> find_ffn(const ModelSource& source, const std::string& prefix, int d_ff,
                                 int d_model);

}  // namespace moeflux
