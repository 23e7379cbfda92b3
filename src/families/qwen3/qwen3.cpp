#include "families/qwen3/qwen3.h"

#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128,
  "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "sliding_window": 4096,
  "max_window_layers": 28
})";
constexpr double kTheta = 1e4;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 8> kKeysRead{
    "num_attention_heads", "num_key_value_heads", "head_dim",          "attention_bias",
    "use_sliding_window",  "sliding_window",      "max_window_layers", "use_qk_norm"};

// The window of every layer: as `layer_types` says, else of the upper ones where there is one.
std::vector<int> read_windows(const JsonFields& text) {
  const int window = text.boolean_or("use_sliding_window", false) ? read_window(text) : 0;
  const int n_layers = read_layer_count(text);
  const std::vector<std::string> types =
      read_layer_types(text, n_layers, {"full_attention", "sliding_attention"});
  const auto first = text.integer("max_window_layers", 0, kMaxSize);
  std::vector<int> windows;
  for (int i = 0; i < n_layers; ++i) {
    const bool slides =
        types.empty() ? i >= first : types[static_cast<std::size_t>(i)] == "sliding_attention";
    if (slides && window == 0 && !types.empty()) {
      fail(Errc::BadInput, "{}: layer_types[{}] is \"sliding_attention\", but there is no window",
           text.origin(), i);
    }
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});
  require_boolean(text, "use_qk_norm", true);

  AttentionSpec attention = read_heads(text);
  attention.has_bias = attention.has_out_bias = text.boolean_or("attention_bias", false);
  attention.qk_norm = QkNorm::PerHead;
  attention.rope = RopeFields(text, kTheta).make_whole(attention.d_head);
  const DenseFfnSpec ffn{.d_ff = size_field(text, "intermediate_size")};
  ModelConfig config = read_sizes(text, kQwen3.name);
  for (const int window : read_windows(text)) {
    attention.window = window;
    config.layers.push_back({attention, ffn});
  }
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"qwen3"};
constexpr std::array<std::string_view, 2> kEndTokens{"<|im_end|>", "<|endoftext|>"};

}  // namespace

constexpr Family kQwen3{
    .name = "qwen3",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
