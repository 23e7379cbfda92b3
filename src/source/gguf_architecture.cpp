#include "source/gguf_architecture.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/ranges.h>

#include "base/error.h"

namespace moeflux {
namespace {

// ---- names
// -------------------------------------------------------------------------------------------------

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

constexpr std::array<GgufName, 4> kOutsideNames{{
    {kRopeFactors, ""},  // part of the config
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
}};

constexpr std::array<GgufName, 23> kBlockNames{{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_up_exps", "mlp.experts.gate_up_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"attn_rot_embd", ""},  // of very old files: frequencies, which follow from the metadata
}};

// Where a layer of the delta rule gives another meaning to a name of attention.
constexpr std::array<GgufName, 1> kDeltaNames{{
    {"attn_qkv", "linear_attn.in_proj_qkv"},
}};

// A head for multi-token prediction, as a layer and as Qwen has it.
constexpr std::array<GgufName, 6> kMtpNames{{
    {"nextn.eh_proj", "eh_proj"},
    {"nextn.enorm", "enorm"},
    {"nextn.hnorm", "hnorm"},
    {"nextn.shared_head_norm", "shared_head.norm"},
    {"nextn.shared_head_head", "shared_head.head"},
    {"nextn.embed_tokens", "embed_tokens"},
}};
constexpr std::array<GgufName, 4> kQwenMtpNames{{
    {"nextn.eh_proj", "mtp.fc"},
    {"nextn.enorm", "mtp.pre_fc_norm_embedding"},
    {"nextn.hnorm", "mtp.pre_fc_norm_hidden"},
    {"nextn.shared_head_norm", "mtp.norm"},
}};

// What may follow the name of a module.
constexpr std::array<std::string_view, 4> kEndings{".weight", ".bias", ".scale", ".input_scale"};

std::string_view ending_of(std::string_view name) {
  for (const std::string_view ending : kEndings)
    if (name.ends_with(ending)) return name.substr(name.size() - ending.size());
  return {};
}

struct Translated {
  bool is_known = false;
  std::string name;
};

Translated translate(std::span<const GgufName> names, std::string_view tensor) {
  const std::string_view ending = ending_of(tensor);
  const std::string_view module = tensor.substr(0, tensor.size() - ending.size());
  for (const GgufName& each : names) {
    if (each.gguf == tensor && (each.is_tensor || !ending.empty()))
      return {true, std::string(each.ours)};
    if (each.gguf != module || ending.empty()) continue;
    return {true, each.ours.empty() ? "" : std::string(each.ours) + std::string(ending)};
  }
  return {};
}

// "blk.3.attn_q.weight" is block 3 and "attn_q.weight".
struct BlockTensor {
  int block = -1;
  std::string_view rest;
};

BlockTensor split_block(std::string_view tensor) {
  constexpr std::string_view kBlock = "blk.";
  if (!tensor.starts_with(kBlock)) return {};
  tensor.remove_prefix(kBlock.size());
  int block = -1;
  const auto [end, error] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), block);
  const auto digits = static_cast<std::size_t>(end - tensor.data());
  if (error != std::errc() || block < 0 || digits >= tensor.size() || tensor[digits] != '.')
    return {};
  return {block, tensor.substr(digits + 1)};
}

// Files from before experts were stacked: "ffn_gate.7.weight".
std::string expert_name(std::string_view rest) {
  constexpr std::array<GgufName, 3> kProjections{
      {{"ffn_gate.", "w1"}, {"ffn_down.", "w2"}, {"ffn_up.", "w3"}}};
  constexpr std::string_view kWeight = ".weight";
  for (const GgufName& each : kProjections) {
    if (!rest.starts_with(each.gguf) || !rest.ends_with(kWeight)) continue;
    rest.remove_prefix(each.gguf.size());
    if (rest.size() <= kWeight.size()) return {};
    rest.remove_suffix(kWeight.size());
    const bool is_number = rest.find_first_not_of("0123456789") == std::string_view::npos;
    return is_number ? fmt::format("mlp.experts.{}.{}.weight", rest, each.ours) : std::string();
  }
  return {};
}

// ---- config
// -------------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 10> kIgnored{
    "vocab_size",                 // the rows of the embedding tell
    "rope.dimension_sections",    // of images
    "rope.scaling.finetuned",     //
    "nextn_predict_layers",       // read with the blocks
    "expert_shared_count",        // of a shared expert its width tells
    "leading_dense_block_count",  // read where some layers are dense
    "attention.layer_norm_epsilon",
    "rope.scale_linear",
    "attention.value_length_mla",
    "attention.key_length_mla",
};

// A share of the head that gives back the dimensions when it is multiplied and cut.
double share_of(int n_rot, int d_head) {
  double share = static_cast<double>(n_rot) / d_head;
  while (static_cast<int>(d_head * share) < n_rot) share = std::nextafter(share, 2.0);
  return share;
}

void copy_number(const GgufFields& fields, std::string_view from, Json& to, const char* key) {
  if (fields.has(from)) to[key] = fields.number(from);
}

// Wider than any: heads have tables that no tensor backs.
constexpr int kMaxHead = 4096;

int head_size(const GgufFields& fields, std::string_view key, int fallback) {
  const int size = fields.size_or(key, fallback);
  if (size > kMaxHead) {
    fail(Errc::Unsupported, "{}: \"{}\": heads of {} are not supported (at most {})", fields.path(),
         fields.name(key), size, kMaxHead);
  }
  return size;
}

Json rope_scaling(const GgufFields& fields) {
  const std::string type = fields.string_or("rope.scaling.type", "none");
  if (type == "none") return {{"rope_type", "default"}};
  Json rope{{"rope_type", type}, {"factor", fields.number("rope.scaling.factor")}};
  if (type == "linear") return rope;
  if (type != "yarn") {
    fail(Errc::Unsupported, "{}: \"{}\": \"{}\" is not supported (supported: none, linear, yarn)",
         fields.path(), fields.name("rope.scaling.type"), type);
  }
  fields.require("rope.scaling.yarn_ext_factor", 1);
  copy_number(fields, "rope.scaling.original_context_length", rope,
              "original_max_position_embeddings");
  copy_number(fields, "rope.scaling.yarn_beta_fast", rope, "beta_fast");
  copy_number(fields, "rope.scaling.yarn_beta_slow", rope, "beta_slow");
  copy_number(fields, "rope.scaling.yarn_attn_factor", rope, "attention_factor");
  return rope;
}

}  // namespace

const GgufArchitecture& gguf_architecture(const GgufHeader& header) {
  const std::string type = header.string_or("general.type", "model");
  if (type != "model") {
    fail(Errc::Unsupported, "{}: holds no model, but what its header calls \"{}\"", header.path(),
         type);
  }
  const std::string name = header.string("general.architecture");
  std::vector<std::string_view> known;
  for (const GgufArchitecture& each : gguf_architectures()) {
    if (each.name == name) return each;
    known.push_back(each.name);
  }
  fail(Errc::Unsupported, "{}: the architecture \"{}\" is not supported (supported: {})",
       header.path(), name, fmt::join(known, ", "));
}

std::string our_name(const GgufArchitecture& architecture, const GgufFields& fields,
                     std::string_view tensor) {
  const auto unknown = [&] {
    fail(Errc::Unsupported, "{}: tensor \"{}\" is not known for the architecture {}", fields.path(),
         tensor, architecture.name);
  };
  const BlockTensor in_block = split_block(tensor);
  if (in_block.block < 0) {
    const Translated outside = translate(kOutsideNames, tensor);
    if (!outside.is_known) unknown();
    return outside.name;
  }
  if (in_block.block >= fields.n_blocks()) unknown();
  if (tensor.ends_with(".input_scale")) return {};  // of activations
  const bool is_mtp = in_block.block >= fields.n_layers();
  const bool is_qwen_mtp = is_mtp && architecture.mtp == GgufMtp::Qwen;
  if (is_mtp && architecture.mtp != GgufMtp::None && in_block.rest.starts_with("nextn.")) {
    const Translated head =
        is_qwen_mtp ? translate(kQwenMtpNames, in_block.rest) : translate(kMtpNames, in_block.rest);
    if (!head.is_known) unknown();
    if (in_block.block > fields.n_layers()) return {};  // one head is used
    return is_qwen_mtp ? head.name : fmt::format("model.layers.{}.{}", in_block.block, head.name);
  }
  Translated found = translate(architecture.names, in_block.rest);
  if (!found.is_known && fields.is_delta(in_block.block))
    found = translate(kDeltaNames, in_block.rest);
  if (!found.is_known) found = translate(kBlockNames, in_block.rest);
  if (!found.is_known) found.name = expert_name(in_block.rest);
  if (!found.is_known && found.name.empty()) unknown();
  if (found.name.empty()) return {};
  if (is_qwen_mtp) {
    return in_block.block > fields.n_layers() ? std::string() : "mtp.layers.0." + found.name;
  }
  return fmt::format("model.layers.{}.{}", in_block.block, found.name);
}

void add_rope(const GgufFields& fields, Json& config, int d_head) {
  Json rope = rope_scaling(fields);
  rope["rope_theta"] = fields.number_or("rope.freq_base", 10000.0);
  if (fields.find_tensor(kRopeFactors) != nullptr) {
    if (rope["rope_type"] != "default") {
      fail(Errc::Unsupported, "{}: tensor \"{}\" beside a scaled RoPE is not supported",
           fields.path(), kRopeFactors);
    }
    rope["rope_type"] = "factors";
    rope["factors"] = fields.read_floats(kRopeFactors);
  }
  const int n_rot = head_size(fields, "rope.dimension_count", d_head);
  if (n_rot > d_head) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, more than a head of {} has", fields.path(),
         fields.name("rope.dimension_count"), n_rot, d_head);
  }
  rope["partial_rotary_factor"] = share_of(n_rot, d_head);
  config["rope_parameters"] = std::move(rope);
}

void add_experts(const GgufFields& fields, Json& config) {
  config["num_experts"] = fields.size("expert_count");
  config["num_experts_per_tok"] = fields.size("expert_used_count");
  if (fields.has("expert_feed_forward_length"))
    config["moe_intermediate_size"] = fields.size_of_layers("expert_feed_forward_length");
  else
    config["moe_intermediate_size"] = config["intermediate_size"];
}

void add_grouped_router(const GgufFields& fields, Json& config) {
  config["n_routed_experts"] = fields.size("expert_count");
  config["num_experts_per_tok"] = fields.size("expert_used_count");
  config["moe_intermediate_size"] = fields.size_of_layers("expert_feed_forward_length");
  config["n_shared_experts"] = fields.count_or("expert_shared_count", 0);
  config["first_k_dense_replace"] = fields.count_or("leading_dense_block_count", 0);
  config["n_group"] = fields.size_or("expert_group_count", 1);
  config["topk_group"] = fields.size_or("expert_group_used_count", 1);
  const double scale = fields.number_or("expert_weights_scale", 1);
  config["routed_scaling_factor"] = scale == 0 ? 1 : scale;  // 0 stands for none
  config["norm_topk_prob"] = fields.boolean_or("expert_weights_norm", false);
}

Json gguf_config(const GgufArchitecture& architecture, const GgufFields& fields) {
  const GgufTensor& embedding = fields.need_tensor("token_embd.weight");
  if (embedding.shape.size() != 2) {
    fail(Errc::BadInput, "{}: tensor \"token_embd.weight\" has {} dimensions instead of 2",
         fields.path(), embedding.shape.size());
  }
  const int d_model = fields.size("embedding_length");
  if (embedding.shape[1] != d_model) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, but tensor \"token_embd.weight\" has {} columns",
         fields.path(), fields.name("embedding_length"), d_model, embedding.shape[1]);
  }
  const int n_heads = fields.size_of_layers("attention.head_count");
  fields.ignore("attention.causal");
  Json config;
  config["vocab_size"] = embedding.shape[0];
  config["hidden_size"] = d_model;
  config["num_hidden_layers"] = fields.n_layers();
  config["max_position_embeddings"] = fields.size("context_length");
  config["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon");
  config["num_attention_heads"] = n_heads;
  config["head_dim"] = head_size(fields, "attention.key_length", std::max(d_model / n_heads, 1));
  config["tie_word_embeddings"] = fields.find_tensor("output.weight") == nullptr;
  if (fields.has("feed_forward_length"))
    config["intermediate_size"] = fields.size_of_layers("feed_forward_length");
  if (!fields.boolean_or("attention.causal", true)) {
    fail(Errc::Unsupported, "{}: \"{}\": models that look ahead are not supported", fields.path(),
         fields.name("attention.causal"));
  }
  architecture.describe(fields, config);
  for (const std::string_view key : kIgnored) fields.ignore(key);
  fields.refuse_unread();
  return config;
}

}  // namespace moeflux
