#include "families/common.h"

#include <algorithm>

#include "base/error.h"
#include "source/tensor_lookup.h"

namespace moeflux {

bool contains(Keys keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

JsonFields text_config(const ModelSource& source) {
  const auto it = source.config().find("text_config");
  if (it != source.config().end() && it->is_object()) {
    return JsonFields(*it, source.config_origin() + ": text_config");
  }
  return JsonFields(source.config(), source.config_origin());
}

void require_one_of(const JsonFields& fields, std::string_view key,
                    std::initializer_list<std::string_view> values) {
  if (!fields.has(key)) return;
  const std::string value = fields.string(key);
  if (std::find(values.begin(), values.end(), value) == values.end()) {
    fail(Errc::Unsupported, "{}: \"{}\": \"{}\" is not supported (supported: {})", fields.origin(),
         key, value, fmt::join(values, ", "));
  }
}

void require_boolean(const JsonFields& fields, std::string_view key, bool value) {
  if (fields.boolean_or(key, value) != value) {
    fail(Errc::Unsupported, "{}: \"{}\": {} is not supported", fields.origin(), key, !value);
  }
}

void require_integer(const JsonFields& fields, std::string_view key,
                     std::initializer_list<std::int64_t> values) {
  if (!fields.has(key)) return;
  const std::int64_t value = fields.integer(key, INT64_MIN, INT64_MAX);
  if (std::find(values.begin(), values.end(), value) == values.end()) {
    fail(Errc::Unsupported, "{}: \"{}\": {} is not supported, the other sizes give {}",
         fields.origin(), key, value, fmt::join(values, " or "));
  }
}

std::string find_prefix(const ModelSource& source,
                        std::initializer_list<std::string_view> candidates,
                        std::string_view suffix) {
  for (const std::string_view prefix : candidates) {
    if (has_tensor(source, fmt::format("{}{}", prefix, suffix))) return std::string(prefix);
  }
  std::string tried;
  for (const std::string_view prefix : candidates) tried += fmt::format(" {}{}", prefix, suffix);
  fail(Errc::NotFound, "{}: no such tensor:{}", source.path(), tried);
}

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

DenseFfnTensors<Stored> find_ffn(const ModelSource& source, const std::string& prefix, int d_ff,
                                 int d_model) {
  return {
      .gate = find_matrix(source, prefix + "gate_proj", d_ff, d_model),
      .up = find_matrix(source, prefix + "up_proj", d_ff, d_model),
      .down = find_matrix(source, prefix + "down_proj", d_model, d_ff),
  };
}

ExpertBank find_experts(const ModelSource& source, const std::string& mlp, const MoeSpec& moe,
                        int d_model) {
  const auto stack = [&](const std::string& module, std::int64_t rows, std::int64_t cols) {
    return find_stacked_matrices(source, mlp + module, moe.n_experts, rows, cols);
  };
  for (const std::string form : {"switch_mlp.", "experts."}) {
    if (has_module(source, mlp + form + "gate_up_proj")) {
      const StoredExpertBank fused = stack(form + "gate_up_proj", 2 * moe.d_expert, d_model);
      return {.gate = fused.slice(0, moe.d_expert),
              .up = fused.slice(moe.d_expert, moe.d_expert),
              .down = stack(form + "down_proj", d_model, moe.d_expert)};
    }
    if (has_module(source, mlp + form + "gate_proj")) {
      return {.gate = stack(form + "gate_proj", moe.d_expert, d_model),
              .up = stack(form + "up_proj", moe.d_expert, d_model),
              .down = stack(form + "down_proj", d_model, moe.d_expert)};
    }
  }
  const auto each = [&](const char* projection, std::int64_t rows, std::int64_t cols) {
    std::vector<StoredMatrix> matrices;
    for (int e = 0; e < moe.n_experts; ++e) {
      matrices.push_back(
          find_matrix(source, fmt::format("{}experts.{}.{}", mlp, e, projection), rows, cols));
    }
    return StoredExpertBank(std::move(matrices));
  };
  return {.gate = each("gate_proj", moe.d_expert, d_model),
          .up = each("up_proj", moe.d_expert, d_model),
          .down = each("down_proj", d_model, moe.d_expert)};
}

}  // namespace moeflux
