// What the families share in reading a config: fields in the places exporters put them, values that
// are refused, sizes of the same name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model_config.h"
#include "source/model_source.h"

namespace moeflux {

using Keys = std::span<const std::string_view>;
bool contains(Keys keys, std::string_view key);

// The object that holds the text model's sizes: `text_config` of a multimodal wrapper, else the
// config itself.
JsonFields text_config(const ModelSource& source);

// That object with the values of `defaults`, a JSON object, for keys that are missing: what the
// reference implementation assumes. A key that is null stays so.
Json with_defaults(const ModelSource& source, std::string_view defaults);

// Throws Unsupported unless the key is absent, null or equal to one of the values.
void require_one_of(const JsonFields& fields, std::string_view key,
                    std::initializer_list<std::string_view> values);
// Throws Unsupported when the boolean is set the other way.
void require_boolean(const JsonFields& fields, std::string_view key, bool value);
// Throws when the integer is there and another one.
void require_integer(const JsonFields& fields, std::string_view key,
                     std::initializer_list<std::int64_t> values);

// validate() has the exact rules; this keeps an int an int.
inline constexpr std::int64_t kMaxSize = 1 << 24;
int size_field(const JsonFields& fields, std::string_view key);

// The sizes that all families call the same; no layers yet.
ModelConfig read_sizes(const JsonFields& text, std::string_view family);
int read_layer_count(const JsonFields& text);

// "layer_types", one of `known` for each layer; empty where the config does not have it.
std::vector<std::string> read_layer_types(const JsonFields& text, int n_layers,
                                          std::initializer_list<std::string_view> known);

// Which layers have experts: every `decoder_sparse_step`-th but those in `mlp_only_layers`.
std::vector<bool> read_moe_layers(const JsonFields& text, int n_layers);

// Heads of grouped-query attention and their scale; no rotation, norms or biases yet. Without a
// head size heads share the hidden size, without a number of key-value heads each has its own.
AttentionSpec read_heads(const JsonFields& text);

// "sliding_window": how many tokens a token sees, itself included; 0 when it is missing or null.
int read_window(const JsonFields& text);

// The number of experts under any of the names that exporters give it. May be 0.
int read_expert_count(const JsonFields& text, int fallback);

// Experts in the manner of DeepSeek-V3: sigmoid scores, a correction for the choice, groups, and
// shared experts, as many as `n_shared` where the config does not say.
MoeSpec read_grouped_moe(const JsonFields& text, int n_experts, int n_shared);

// Whether the embedding serves as the head.
bool head_is_tied(const ModelSource& source);

}  // namespace moeflux
