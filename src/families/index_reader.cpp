#include "families/index_reader.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "source/tensor_lookup.h"

namespace moeflux {
namespace {

// A small unquantized matrix [rows, cols], in memory as one vector [cols, rows].
StoredVector find_transposed(const ModelSource& source, const std::string& module,
                             std::int64_t rows, std::int64_t cols) {
  const StoredMatrix matrix = find_matrix(source, module, rows, cols);
  DType dtype = DType::F32;
  switch (matrix.format.kind) {
    case WeightKind::F32:
      break;
    case WeightKind::F16:
      dtype = DType::F16;
      break;
    case WeightKind::BF16:
      dtype = DType::BF16;
      break;
    default:
      fail(Errc::Unsupported, "{}: {} is stored as {}, but must be F32, F16 or BF16", source.path(),
           matrix.name, describe(matrix.format));
  }
  return {.name = matrix.name,
          .dtype = dtype,
          .size = rows * cols,
          .data = matrix.data,
          .columns = cols};
}

// A stack of equal matrices that lie one after the other, as one tall matrix.
StoredMatrix find_tall_matrix(const ModelSource& source, const std::string& module, int count,
                              std::int64_t rows, std::int64_t cols) {
  StoredMatrix matrix = find_stacked_matrices(source, module, count, rows, cols).at(0);
  if (matrix.format.kind == WeightKind::Fp8Block && rows % matrix.format.block != 0) {
    // The scales of each begin with a block of their own; in a tall matrix blocks would go across.
    fail(Errc::Unsupported,
         "{}: tensor \"{}\" is FP8 with {} rows, which blocks of {} do not divide", source.path(),
         matrix.name, rows, matrix.format.block);
  }
  matrix.rows *= count;
  for (Extent* plane : {&matrix.data, &matrix.scales, &matrix.biases}) {
    plane->bytes *= static_cast<std::uint64_t>(count);
  }
  return matrix;
}

std::string mtp_layer_prefix(const ModelSource& source, int n_layers) {
  return fmt::format("{}layers.{}.", trunk_prefix(source), n_layers);
}

}  // namespace

std::string find_prefix(const ModelSource& source,
                        std::initializer_list<std::string_view> candidates,
                        std::string_view suffix) {
  constexpr std::string_view kWeight = ".weight";  // or what a quantized module has in its place
  for (const std::string_view prefix : candidates) {
    std::string name = fmt::format("{}{}", prefix, suffix);
    if (has_tensor(source, name)) return std::string(prefix);
    if (!suffix.ends_with(kWeight)) continue;
    name.resize(name.size() - kWeight.size());
    if (has_module(source, name)) return std::string(prefix);
  }
  std::string tried;
  for (const std::string_view prefix : candidates) tried += fmt::format(" {}{}", prefix, suffix);
  fail(Errc::NotFound, "{}: no such tensor:{}", source.path(), tried);
}

std::string trunk_prefix(const ModelSource& source) {
  return find_prefix(source, {"model.", "language_model.model.", "model.language_model."},
                     "embed_tokens.weight");
}

bool has_tensors_below(const ModelSource& source, const std::string& prefix) {
  const auto next = source.tensors().lower_bound(prefix);
  return next != source.tensors().end() && next->first.starts_with(prefix);
}

bool has_mtp_layer(const ModelSource& source, int n_layers) {
  return has_module(source, mtp_layer_prefix(source, n_layers) + "eh_proj");
}

// The layer's own copies of embedding and head duplicate the trunk's and are not read.
MtpNames mtp_layer_names(const ModelSource& source, int n_layers) {
  return {.prefix = mtp_layer_prefix(source, n_layers),
          .embed_norm = "enorm",
          .hidden_norm = "hnorm",
          .fc = "eh_proj",
          .layer = "",
          .final_norm = "shared_head.norm"};
}

IndexReader::IndexReader(const ModelSource& source, const ModelConfig& config, TensorNames names)
    : source_(source), config_(config), names_(std::move(names)) {}

ModelIndex IndexReader::read(bool head_is_tied) const {
  ModelIndex index;
  const int d = config_.d_model;
  index.tensors.embed = find_matrix(source_, names_.trunk + "embed_tokens", config_.n_vocab, d);
  index.tensors.final_norm = norm(names_.trunk + "norm.weight", d);
  if (!head_is_tied) {
    const std::string prefix =
        find_prefix(source_, {"", "language_model.", "model."}, "lm_head.weight");
    index.tensors.head = find_matrix(source_, prefix + "lm_head", config_.n_vocab, d);
  }
  for (int i = 0; i < config_.n_layers(); ++i) {
    index.tensors.layers.push_back(layer(fmt::format("{}layers.{}.", names_.trunk, i),
                                         config_.layers[static_cast<std::size_t>(i)],
                                         index.experts));
  }
  if (config_.mtp) index.tensors.mtp = mtp(index.experts);
  return index;
}

StoredVector IndexReader::norm(const std::string& name, std::int64_t size) const {
  return find_vector(source_, name, size);
}

Layer<Stored> IndexReader::layer(const std::string& p, const LayerSpec& spec, Banks& banks) const {
  Layer<Stored> t;
  const auto norm_of = [&](const std::string& name) {
    return norm(p + name + ".weight", config_.d_model);
  };
  t.mixer_norm = norm_of(names_.mixer_norm);
  t.ffn_norm = norm_of(names_.ffn_norm);
  if (spec.has_post_norms) {
    t.mixer_post_norm = norm_of(names_.mixer_post_norm);
    t.ffn_post_norm = norm_of(names_.ffn_post_norm);
  }
  if (spec.has_scale) t.scale = find_vector(source_, p + "layer_scalar", 1);
  std::visit([&](const auto& s) { t.mixer = mixer(p, s); }, spec.mixer);
  if (const auto* s = std::get_if<MoeSpec>(&spec.ffn)) {
    t.ffn = moe(p + names_.mlp, *s, banks);
  } else {
    t.ffn = ffn(p + names_.mlp, std::get<DenseFfnSpec>(spec.ffn));
  }
  return t;
}

MtpTensors<Stored> IndexReader::mtp(Banks& banks) const {
  const MtpNames& names = names_.mtp;
  const std::string& p = names.prefix;
  const int d = config_.d_model;
  return {
      .embed_norm = norm(p + names.embed_norm + ".weight", d),
      .hidden_norm = norm(p + names.hidden_norm + ".weight", d),
      .fc = find_matrix(source_, p + names.fc, d, 2 * d),
      .layer = layer(p + names.layer, *config_.mtp, banks),
      .final_norm = norm(p + names.final_norm + ".weight", d),
  };
}

// ---- mixers
// -------------------------------------------------------------------------------------------------

Attention<Stored> IndexReader::mixer(const std::string& layer, const AttentionSpec& s) const {
  const std::string p = layer + names_.attention;
  const int d = config_.d_model;
  Attention<Stored> t{
      .spec = s,
      .q = linear(p + "q_proj", std::int64_t{s.n_heads} * s.query_head(), d, s.has_bias),
      .k = linear(p + "k_proj", s.kv_dim(), d, s.has_bias),
      .v = s.values_are_keys ? Linear<Stored>() : linear(p + "v_proj", s.kv_dim(), d, s.has_bias),
      .o = linear(p + "o_proj", d, s.q_dim(), s.has_out_bias),
      .q_norm = {},
      .k_norm = {},
      .sinks = {},
  };
  if (s.qk_norm != QkNorm::None) {
    const bool whole = s.qk_norm == QkNorm::WholeRow;
    t.q_norm = norm(p + "q_norm.weight", whole ? s.q_dim() : s.d_head);
    t.k_norm = norm(p + "k_norm.weight", whole ? s.kv_dim() : s.d_head);
  }
  if (s.has_sinks) t.sinks = find_vector(source_, p + "sinks", s.n_heads);
  return t;
}

GatedDelta<Stored> IndexReader::mixer(const std::string& layer, const GatedDeltaSpec& s) const {
  const std::string p = layer + names_.delta;
  GatedDelta<Stored> t;
  t.spec = s;
  read_delta_inputs(p, t);
  t.out = find_matrix(source_, p + "out_proj", config_.d_model, s.value_dim());
  // [C, 1, K] and [C, K, 1] hold the same bytes.
  t.conv = find_transposed(source_, p + "conv1d", s.conv_dim(), s.conv_width);
  t.a_log = find_decay(p, s.n_value_heads);
  t.dt_bias = find_vector(source_, p + "dt_bias", s.n_value_heads);
  t.norm = find_vector(source_, p + "norm.weight", s.d_value);
  return t;
}

// The logarithm of the decay, or its negated exponential where a converter to GGUF has made that.
StoredVector IndexReader::find_decay(const std::string& p, int n_heads) const {
  const std::string name = p + "decay";
  if (!has_tensor(source_, name)) return find_vector(source_, p + "A_log", n_heads);
  StoredVector vector = find_vector(source_, name, n_heads);
  for (const float value : read_vector(source_, vector)) {
    if (!(value < 0)) {
      fail(Errc::BadInput, "{}: tensor \"{}\" has the value {}, but a decay is negative",
           source_.path(), name, value);
    }
  }
  vector.are_negated_exps = true;
  return vector;
}

// One by one, or fused into two matrices that are grouped by key head: its query and key, then
// values and gates of the value heads that share it; likewise b and a, also where the others are
// not.
void IndexReader::read_delta_inputs(const std::string& p, GatedDelta<Stored>& t) const {
  const GatedDeltaSpec& s = t.spec;
  const int d = config_.d_model, n_heads = s.n_key_heads;
  const bool is_fused = has_module(source_, p + "in_proj_qkvz");
  if (is_fused) {
    const int key = s.d_key, value = s.value_dim() / n_heads;
    const int group = 2 * (key + value);
    const auto of_each_group = [&](int first, int take) -> RowRun {
      return {.first = first, .take = take, .stride = group, .count = n_heads};
    };
    const StoredMatrix qkvz = find_matrix(source_, p + "in_proj_qkvz", n_heads * group, d);
    t.qkv =
        qkvz.pick({of_each_group(0, key), of_each_group(key, key), of_each_group(2 * key, value)});
    t.z = qkvz.pick({of_each_group(2 * key + value, value)});
  } else {
    t.qkv = find_matrix(source_, p + "in_proj_qkv", s.conv_dim(), d);
    t.z = find_matrix(source_, p + "in_proj_z", s.value_dim(), d);
  }
  if (!is_fused && !has_module(source_, p + "in_proj_ba")) {
    t.b = find_matrix(source_, p + "in_proj_b", s.n_value_heads, d);
    t.a = find_matrix(source_, p + "in_proj_a", s.n_value_heads, d);
    return;
  }
  const int shared = s.n_value_heads / n_heads;
  const StoredMatrix ba = find_matrix(source_, p + "in_proj_ba", 2 * s.n_value_heads, d);
  t.b = ba.pick({{.first = 0, .take = shared, .stride = 2 * shared, .count = n_heads}});
  t.a = ba.pick({{.first = shared, .take = shared, .stride = 2 * shared, .count = n_heads}});
}

LatentAttention<Stored> IndexReader::mixer(const std::string& layer, const MlaSpec& s) const {
  const std::string p = layer + names_.attention;
  const std::int64_t d = config_.d_model;
  const std::int64_t q_dim = std::int64_t{s.n_heads} * s.d_query();
  LatentAttention<Stored> t;
  t.spec = s;
  if (s.q_rank > 0) {
    t.q_a = find_matrix(source_, p + "q_a_proj", s.q_rank, d);
    t.q_a_norm = find_vector(source_, p + "q_a_layernorm.weight", s.q_rank);
    t.q = find_matrix(source_, p + "q_b_proj", q_dim, s.q_rank);
  } else {
    t.q = find_matrix(source_, p + "q_proj", q_dim, d);
  }
  t.kv_a = find_matrix(source_, p + "kv_a_proj_with_mqa", s.d_row(), d);
  t.kv_a_norm = find_vector(source_, p + "kv_a_layernorm.weight", s.kv_rank);
  if (has_module(source_, p + "embed_q")) {
    t.embed_q = find_tall_matrix(source_, p + "embed_q", s.n_heads, s.kv_rank, s.d_nope);
    t.unembed = find_tall_matrix(source_, p + "unembed_out", s.n_heads, s.d_value, s.kv_rank);
  } else {
    t.kv_b = find_matrix(source_, p + "kv_b_proj", std::int64_t{s.n_heads} * (s.d_nope + s.d_value),
                         s.kv_rank);
  }
  t.o = find_matrix(source_, p + "o_proj", d, std::int64_t{s.n_heads} * s.d_value);
  return t;
}

// ---- feed-forwards
// -------------------------------------------------------------------------------------------------

Linear<Stored> IndexReader::linear(const std::string& module, std::int64_t rows, std::int64_t cols,
                                   bool has_bias) const {
  Linear<Stored> t;
  t.weight = find_matrix(source_, module, rows, cols);
  if (has_bias) t.bias = find_vector(source_, module + ".bias", rows);
  return t;
}

// Gate and up by themselves or fused, gate rows first.
FeedForward<Stored> IndexReader::ffn(const std::string& p, const DenseFfnSpec& s) const {
  const int d = config_.d_model;
  const Linear<Stored> down = linear(p + "down_proj", d, s.d_ff, s.has_bias);
  if (!s.has_bias && has_module(source_, p + "gate_up_proj")) {
    const StoredMatrix fused = find_matrix(source_, p + "gate_up_proj", 2 * s.d_ff, d);
    return {.spec = s,
            .gate = {fused.slice(0, s.d_ff), {}},
            .up = {fused.slice(s.d_ff, s.d_ff), {}},
            .down = down};
  }
  return {.spec = s,
          .gate = linear(p + "gate_proj", s.d_ff, d, s.has_bias),
          .up = linear(p + "up_proj", s.d_ff, d, s.has_bias),
          .down = down};
}

Moe<Stored> IndexReader::moe(const std::string& p, const MoeSpec& s, Banks& banks) const {
  const int d = config_.d_model;
  Moe<Stored> t;
  t.spec = s;
  t.bank = static_cast<int>(banks.size());
  banks.push_back(experts(p, s));
  if (s.has_expert_bias) read_expert_biases(p, t);
  if (s.router.has_norm) {
    // Besides its weights it divides by the root of the width.
    t.router_norm = find_vector(source_, p + names_.router_norm, d);
    t.router_norm.factor = 1.0f / std::sqrt(static_cast<float>(d));
  }
  if (s.router.has_expert_scales)
    t.expert_scales = find_vector(source_, p + names_.expert_scales, s.n_experts);
  if (s.has_part_norms) {
    t.shared_post_norm = norm(p + names_.shared_post_norm, d);
    t.expert_norm = norm(p + names_.expert_norm, d);
    t.expert_post_norm = norm(p + names_.expert_post_norm, d);
  }
  t.router = linear(p + names_.router, s.n_experts, d, s.router.has_bias);
  if (s.router.has_correction_bias) {
    t.correction_bias = find_vector(source_, p + names_.correction_bias, s.n_experts);
  }
  if (s.d_shared > 0) {
    t.shared = ffn(p + names_.shared, {.d_ff = s.d_shared, .activation = s.activation});
  }
  if (s.shared_is_gated) t.shared_gate = find_matrix(source_, p + names_.shared_gate, 1, d);
  return t;
}

// In whichever form the checkpoint stores them: stacked (`switch_mlp.*`, `switch_glu.*`), fused
// (`experts.gate_up_proj`, gate rows first) or one by one (`experts.0.gate_proj`).
ExpertBank IndexReader::experts(const std::string& mlp, const MoeSpec& s) const {
  const int d = config_.d_model;
  const auto stack = [&](const std::string& module, std::int64_t rows, std::int64_t cols) {
    return find_stacked_matrices(source_, mlp + module, s.n_experts, rows, cols);
  };
  if (names_.gate_up_alternates && has_module(source_, mlp + "experts.gate_up_proj"))
    return alternating_experts(mlp, s);
  for (const std::string form : {"switch_mlp.", "experts.", "experts.switch_glu."}) {
    if (has_module(source_, mlp + form + "gate_up_proj")) {
      const StoredExpertBank fused = stack(form + "gate_up_proj", 2 * s.d_expert, d);
      return {.gate = fused.slice(0, s.d_expert),
              .up = fused.slice(s.d_expert, s.d_expert),
              .down = stack(form + "down_proj", d, s.d_expert)};
    }
    if (has_module(source_, mlp + form + "gate_proj")) {
      return {.gate = stack(form + "gate_proj", s.d_expert, d),
              .up = stack(form + "up_proj", s.d_expert, d),
              .down = stack(form + "down_proj", d, s.d_expert)};
    }
  }
  const auto each = [&](const std::string& projection, std::int64_t rows, std::int64_t cols) {
    std::vector<StoredMatrix> matrices;
    for (int e = 0; e < s.n_experts; ++e) {
      matrices.push_back(
          find_matrix(source_, fmt::format("{}experts.{}.{}", mlp, e, projection), rows, cols));
    }
    return StoredExpertBank(std::move(matrices));
  };
  return {.gate = each(names_.gate, s.d_expert, d),
          .up = each(names_.up, s.d_expert, d),
          .down = each(names_.down, d, s.d_expert)};
}

ExpertBank IndexReader::alternating_experts(const std::string& mlp, const MoeSpec& s) const {
  const auto stack = [&](const char* module, std::int64_t rows, std::int64_t cols) {
    return find_stacked_matrices(source_, mlp + module, s.n_experts, rows, cols,
                                 FloatStack::Transposed);
  };
  const StoredExpertBank fused = stack("experts.gate_up_proj", 2 * s.d_expert, config_.d_model);
  return {.gate = fused.pick({{.first = 0, .take = 1, .stride = 2, .count = s.d_expert}}),
          .up = fused.pick({{.first = 1, .take = 1, .stride = 2, .count = s.d_expert}}),
          .down = stack("experts.down_proj", config_.d_model, s.d_expert)};
}

// Of stacked experts, beside their matrices.
void IndexReader::read_expert_biases(const std::string& mlp, Moe<Stored>& moe) const {
  const MoeSpec& s = moe.spec;
  const std::string fused = mlp + "experts.gate_up_proj_bias";
  if (names_.gate_up_alternates && has_tensor(source_, fused)) {
    const StoredVector bias = find_vector(source_, fused, 2 * s.d_expert, s.n_experts);
    moe.gate_bias = bias.every(0, 2);
    moe.up_bias = bias.every(1, 2);
    moe.down_bias =
        find_vector(source_, mlp + "experts.down_proj_bias", config_.d_model, s.n_experts);
    return;
  }
  const std::string p =
      mlp + (has_module(source_, mlp + "switch_mlp.gate_proj") ? "switch_mlp." : "experts.");
  moe.gate_bias = find_vector(source_, p + "gate_proj.bias", s.d_expert, s.n_experts);
  moe.up_bias = find_vector(source_, p + "up_proj.bias", s.d_expert, s.n_experts);
  moe.down_bias = find_vector(source_, p + "down_proj.bias", config_.d_model, s.n_experts);
}

}  // namespace moeflux
