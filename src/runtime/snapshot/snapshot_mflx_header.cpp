#include "runtime/snapshot/snapshot_mflx_header.h"

#include <limits>

namespace moeflux {
namespace {

struct Sizes {
  std::int64_t n_layers = 0, interval = 0;
  std::int64_t n_kv_heads = 0, d_head = 0;
  std::int64_t conv_bytes = 0, ssm_bytes = 0;
  std::int64_t kv_rank = 0, d_rope = 0;

  bool operator==(const Sizes&) const = default;
};

void describe(const AttentionSpec& spec, Sizes& sizes) {
  sizes.n_kv_heads = spec.n_kv_heads;
  sizes.d_head = spec.d_head;
}

void describe(const GatedDeltaSpec& spec, Sizes& sizes) {
  sizes.conv_bytes = std::int64_t{4} * (spec.conv_width - 1) * spec.conv_dim();
  sizes.ssm_bytes = std::int64_t{4} * spec.n_value_heads * spec.d_value * spec.d_key;
}

void describe(const MlaSpec& spec, Sizes& sizes) {
  sizes.n_kv_heads = spec.n_heads;
  sizes.d_head = spec.d_nope + spec.d_rope;
  sizes.kv_rank = spec.kv_rank;
  sizes.d_rope = spec.d_rope;
}

void describe(const LayerSpec& layer, Sizes& sizes) {
  std::visit([&](const auto& spec) { describe(spec, sizes); }, layer.mixer);
}

bool is_linear(const LayerSpec& layer) {
  return std::holds_alternative<GatedDeltaSpec>(layer.mixer);
}

Sizes sizes_of(const ModelConfig& config) {
  const auto& layers = config.layers;
  const auto first_full = std::find_if_not(layers.begin(), layers.end(), is_linear);
  if (first_full == layers.end()) {
    refuse(SnapshotFault::Unsupported,
           "a model without full attention has no length in an MFLX snapshot; use version 3");
  }
  Sizes sizes{.n_layers = config.n_layers(), .interval = first_full - layers.begin() + 1};
  for (const LayerSpec& layer : layers) describe(layer, sizes);
  for (std::int64_t i = 0; i < config.n_layers(); ++i) {
    const LayerSpec& layer = layers[static_cast<std::size_t>(i)];
    Sizes same = sizes;
    describe(layer, same);
    const bool full = (i + 1) % sizes.interval == 0;
    const bool fits = full ? layer.mixer.index() == first_full->mixer.index() : is_linear(layer);
    if (same != sizes || !fits) {
      refuse(SnapshotFault::Unsupported,
             "layer {} does not follow the pattern that an MFLX snapshot can describe; use "
             "version 3",
             i);
    }
  }
  return sizes;
}

}  // namespace

std::uint64_t mflx_header_bytes(SnapshotVersion version) {
  return version == SnapshotVersion::V1 ? 32 : 40;
}

std::vector<MflxField> mflx_fields(const ModelConfig& config, SnapshotVersion version) {
  const Sizes sizes = sizes_of(config);
  std::vector<MflxField> fields;
  const auto add = [&](const char* name, std::int64_t value) {
    if (value > std::numeric_limits<std::uint32_t>::max())
      refuse(SnapshotFault::Unsupported, "{} = {} does not fit an MFLX snapshot", name, value);
    fields.push_back({name, static_cast<std::uint32_t>(value)});
  };
  add("num_layers", sizes.n_layers);
  add("full_attn_interval", sizes.interval);
  add("num_kv_heads", sizes.n_kv_heads);
  add("head_dim", sizes.d_head);
  add("linear_conv_bytes", sizes.conv_bytes);
  add("linear_ssm_bytes", sizes.ssm_bytes);
  if (version == SnapshotVersion::V1) {
    if (sizes.kv_rank > 0) {
      refuse(SnapshotFault::Unsupported,
             "MFLX version 1 has no latent attention; use version 2 or 3");
    }
    return fields;
  }
  add("kv_lora_rank", sizes.kv_rank);
  add("qk_rope_head_dim", sizes.d_rope);
  return fields;
}

void check_mflx_header(const ModelConfig& config, SnapshotVersion version,
                       const SnapshotSource& source) {
  const std::vector<MflxField> fields = mflx_fields(config, version);
  if (source.size() < mflx_header_bytes(version)) {
    refuse(SnapshotFault::BufferTooSmall, "{}: has {} bytes, and its header alone {}",
           source.name(), source.size(), mflx_header_bytes(version));
  }
  std::uint64_t offset = 8;
  for (const MflxField& field : fields) {
    const auto got = read_field<std::uint32_t>(source, offset);
    offset += sizeof got;
    if (got == field.value) continue;
    refuse(SnapshotFault::ShapeMismatch,
           "{}: {} is {}, but {} in this model; it was written with another one", source.name(),
           field.name, got, field.value);
  }
}

}  // namespace moeflux
