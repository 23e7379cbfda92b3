#include "support/tiny_model.h"

#include <fmt/format.h>

#include "support/safetensors_writer.h"

namespace moeflux::test {
namespace {

class Writer {
 public:
  explicit Writer(Random& random) : random_(random) {}

  void tensor(const std::string& name, std::vector<std::int64_t> shape, double scale = 0.3,
              float shift = 0) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    std::vector<float> values = random_.floats(count, scale);
    for (float& value : values) value += shift;
    out_.add_f32(name, std::move(shape), values);
  }
  void norm(const std::string& name, std::int64_t size, float centre) {
    tensor(name, {size}, 0.1, centre);
  }
  void ffn(const std::string& p, std::int64_t d_ff, std::int64_t d) {
    tensor(p + "gate_proj.weight", {d_ff, d});
    tensor(p + "up_proj.weight", {d_ff, d});
    tensor(p + "down_proj.weight", {d, d_ff});
  }
  void write(const std::string& directory, const Json& config) const {
    write_file(directory + "/config.json", dump_json(config, 1));
    out_.write(directory + "/model.safetensors");
  }

 private:
  Random& random_;
  SafetensorsWriter out_;
};

Json rope_fields(Random& random) {
  Json rope{{"rope_theta", 10000.0}, {"rope_type", "default"}};
  if (random.chance(0.5)) {
    rope = {{"rope_theta", 10000.0},
            {"rope_type", "yarn"},
            {"factor", 8.0},
            {"original_max_position_embeddings", 512}};
  }
  return rope;
}

struct Qwen {
  std::int64_t d, heads, kv_heads, d_head, key_heads, value_heads, d_key, d_value, conv, experts,
      d_expert, d_shared;

  explicit Qwen(Random& r)
      : d(r.integer(3, 40)),
        kv_heads(r.integer(1, 3)),
        d_head(4 * r.integer(1, 6)),
        key_heads(r.integer(1, 3)),
        d_key(r.integer(1, 18)),
        d_value(r.integer(1, 18)),
        conv(r.integer(2, 6)),
        experts(r.integer(1, 9)),
        d_expert(r.integer(1, 21)),
        d_shared(r.integer(1, 21)) {
    heads = kv_heads * r.integer(1, 3);
    value_heads = key_heads * r.integer(1, 3);
  }

  void layer(Writer& w, const std::string& p, bool full) const {
    w.norm(p + "input_layernorm.weight", d, 0);
    w.norm(p + "post_attention_layernorm.weight", d, 0);
    if (full) {
      w.tensor(p + "self_attn.q_proj.weight", {2 * heads * d_head, d});
      w.tensor(p + "self_attn.k_proj.weight", {kv_heads * d_head, d});
      w.tensor(p + "self_attn.v_proj.weight", {kv_heads * d_head, d});
      w.tensor(p + "self_attn.o_proj.weight", {d, heads * d_head});
      w.norm(p + "self_attn.q_norm.weight", d_head, 0);
      w.norm(p + "self_attn.k_norm.weight", d_head, 0);
    } else {
      const std::int64_t channels = 2 * key_heads * d_key + value_heads * d_value;
      w.tensor(p + "linear_attn.in_proj_qkv.weight", {channels, d});
      w.tensor(p + "linear_attn.in_proj_z.weight", {value_heads * d_value, d});
      w.tensor(p + "linear_attn.in_proj_b.weight", {value_heads, d});
      w.tensor(p + "linear_attn.in_proj_a.weight", {value_heads, d});
      w.tensor(p + "linear_attn.conv1d.weight", {channels, 1, conv});
      w.tensor(p + "linear_attn.A_log", {value_heads});
      w.tensor(p + "linear_attn.dt_bias", {value_heads});
      w.norm(p + "linear_attn.norm.weight", d_value, 1);
      w.tensor(p + "linear_attn.out_proj.weight", {d, value_heads * d_value});
    }
    w.tensor(p + "mlp.gate.weight", {experts, d}, 1);
    w.tensor(p + "mlp.experts.gate_up_proj", {experts, 2 * d_expert, d});
    w.tensor(p + "mlp.experts.down_proj", {experts, d, d_expert});
    w.ffn(p + "mlp.shared_expert.", d_shared, d);
    w.tensor(p + "mlp.shared_expert_gate.weight", {1, d});
  }
};

struct Deepseek {
  std::int64_t d, heads, q_rank, kv_rank, d_nope, d_rope, d_value, groups, experts, d_expert,
      n_shared, d_ff;

  explicit Deepseek(Random& r)
      : d(r.integer(3, 40)),
        heads(r.integer(1, 5)),
        q_rank(r.chance(0.5) ? r.integer(1, 20) : 0),
        kv_rank(r.integer(1, 24)),
        d_nope(r.integer(1, 18)),
        d_rope(2 * r.integer(1, 8)),
        d_value(r.integer(1, 18)),
        groups(r.integer(1, 3)),
        d_expert(r.integer(1, 21)),
        n_shared(r.integer(0, 2)),
        d_ff(r.integer(1, 50)) {
    experts = groups * r.integer(2, 5);
  }

  void layer(Writer& w, const std::string& p, bool dense) const {
    w.norm(p + "input_layernorm.weight", d, 1);
    w.norm(p + "post_attention_layernorm.weight", d, 1);
    const std::string a = p + "self_attn.";
    if (q_rank > 0) {
      w.tensor(a + "q_a_proj.weight", {q_rank, d});
      w.norm(a + "q_a_layernorm.weight", q_rank, 1);
      w.tensor(a + "q_b_proj.weight", {heads * (d_nope + d_rope), q_rank});
    } else {
      w.tensor(a + "q_proj.weight", {heads * (d_nope + d_rope), d});
    }
    w.tensor(a + "kv_a_proj_with_mqa.weight", {kv_rank + d_rope, d});
    w.norm(a + "kv_a_layernorm.weight", kv_rank, 1);
    w.tensor(a + "kv_b_proj.weight", {heads * (d_nope + d_value), kv_rank});
    w.tensor(a + "o_proj.weight", {d, heads * d_value});
    if (dense) return w.ffn(p + "mlp.", d_ff, d);
    w.tensor(p + "mlp.gate.weight", {experts, d}, 1);
    w.tensor(p + "mlp.gate.e_score_correction_bias", {experts});
    for (std::int64_t e = 0; e < experts; ++e)
      w.ffn(fmt::format("{}mlp.experts.{}.", p, e), d_expert, d);
    if (n_shared > 0) w.ffn(p + "mlp.shared_experts.", n_shared * d_expert, d);
  }
};

}  // namespace

void write_random_qwen(Random& random, const std::string& directory) {
  const Qwen m(random);
  const std::int64_t n_layers = random.integer(1, 3), n_vocab = random.integer(2, 60);
  const bool has_mtp = random.chance(0.5), tied = random.chance(0.5);
  Json types = Json::array();
  Writer w(random);
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const bool full = random.chance(0.5);
    types.push_back(full ? "full_attention" : "linear_attention");
    m.layer(w, fmt::format("model.layers.{}.", i), full);
  }
  w.tensor("model.embed_tokens.weight", {n_vocab, m.d}, 1);
  w.norm("model.norm.weight", m.d, 0);
  if (!tied) w.tensor("lm_head.weight", {n_vocab, m.d});
  if (has_mtp) {
    w.tensor("mtp.fc.weight", {m.d, 2 * m.d});
    for (const char* name : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
      w.norm(fmt::format("mtp.{}.weight", name), m.d, 0);
    }
    m.layer(w, "mtp.layers.0.", true);
  }
  Json rope = rope_fields(random);
  rope["partial_rotary_factor"] = random.chance(0.5) ? 0.5 : 1.0;
  w.write(directory, {{"model_type", "qwen3_5_moe_text"},
                      {"hidden_size", m.d},
                      {"num_hidden_layers", n_layers},
                      {"vocab_size", n_vocab},
                      {"max_position_embeddings", 4096},
                      {"layer_types", types},
                      {"num_attention_heads", m.heads},
                      {"num_key_value_heads", m.kv_heads},
                      {"head_dim", m.d_head},
                      {"linear_num_key_heads", m.key_heads},
                      {"linear_num_value_heads", m.value_heads},
                      {"linear_key_head_dim", m.d_key},
                      {"linear_value_head_dim", m.d_value},
                      {"linear_conv_kernel_dim", m.conv},
                      {"output_gate_type", random.chance(0.5) ? "sigmoid" : "swish"},
                      {"num_experts", m.experts},
                      {"num_experts_per_tok", random.integer(1, m.experts)},
                      {"moe_intermediate_size", m.d_expert},
                      {"shared_expert_intermediate_size", m.d_shared},
                      {"rope_parameters", rope},
                      {"tie_word_embeddings", tied}});
}

void write_random_deepseek(Random& random, const std::string& directory) {
  const Deepseek m(random);
  const std::int64_t n_layers = random.integer(1, 3), n_vocab = random.integer(2, 60);
  const std::int64_t n_dense = random.integer(0, n_layers),
                     top_groups = random.integer(1, m.groups);
  Writer w(random);
  for (std::int64_t i = 0; i < n_layers; ++i)
    m.layer(w, fmt::format("model.layers.{}.", i), i < n_dense);
  w.tensor("model.embed_tokens.weight", {n_vocab, m.d}, 1);
  w.norm("model.norm.weight", m.d, 1);
  w.tensor("lm_head.weight", {n_vocab, m.d});
  if (random.chance(0.5)) {
    const std::string p = fmt::format("model.layers.{}.", n_layers);
    w.norm(p + "enorm.weight", m.d, 1);
    w.norm(p + "hnorm.weight", m.d, 1);
    w.tensor(p + "eh_proj.weight", {m.d, 2 * m.d});
    w.norm(p + "shared_head.norm.weight", m.d, 1);
    m.layer(w, p, false);
  }
  w.write(directory, {{"model_type", "deepseek_v3"},
                      {"hidden_size", m.d},
                      {"num_hidden_layers", n_layers},
                      {"vocab_size", n_vocab},
                      {"max_position_embeddings", 4096},
                      {"num_attention_heads", m.heads},
                      {"q_lora_rank", m.q_rank > 0 ? Json(m.q_rank) : Json()},
                      {"kv_lora_rank", m.kv_rank},
                      {"qk_nope_head_dim", m.d_nope},
                      {"qk_rope_head_dim", m.d_rope},
                      {"v_head_dim", m.d_value},
                      {"intermediate_size", m.d_ff},
                      {"moe_intermediate_size", m.d_expert},
                      {"n_routed_experts", m.experts},
                      {"n_shared_experts", m.n_shared},
                      {"num_experts_per_tok", random.integer(1, m.experts / m.groups * top_groups)},
                      {"n_group", m.groups},
                      {"topk_group", top_groups},
                      {"first_k_dense_replace", n_dense},
                      {"norm_topk_prob", random.chance(0.5)},
                      {"routed_scaling_factor", 1.5},
                      {"rope_parameters", rope_fields(random)},
                      {"rope_interleave", random.chance(0.5)}});
}

}  // namespace moeflux::test
