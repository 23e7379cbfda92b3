// MFLX versions 1 and 2 (docs/SNAPSHOT.md).
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "backends/backend.h"
#include "runtime/host_bytes.h"
#include "runtime/snapshot/kv_rows.h"
#include "runtime/snapshot/snapshot_stream.h"

namespace moeflux {
namespace {

// ---- The header: the sizes that a snapshot and a model must agree on.

// Behind magic and version, in the order of the file.
struct Field {
  const char* name;
  std::uint32_t value;
};

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

std::uint64_t header_bytes(SnapshotVersion version) {
  return version == SnapshotVersion::V1 ? 32 : 40;
}

// Throws for a model that the version cannot hold: one size per kind of layer, and every
// interval-th layer a full one, is all that the header can say.
std::vector<Field> fields_of(const ModelConfig& config, SnapshotVersion version) {
  const Sizes sizes = sizes_of(config);
  std::vector<Field> fields;
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

void check_header(const ModelConfig& config, SnapshotVersion version,
                  const SnapshotSource& source) {
  const std::vector<Field> fields = fields_of(config, version);
  if (source.size() < header_bytes(version)) {
    refuse(SnapshotFault::BufferTooSmall, "{}: has {} bytes, and its header alone {}",
           source.name(), source.size(), header_bytes(version));
  }
  std::uint64_t offset = 8;
  for (const Field& field : fields) {
    const auto got = read_field<std::uint32_t>(source, offset);
    offset += sizeof got;
    if (got == field.value) continue;
    refuse(SnapshotFault::ShapeMismatch,
           "{}: {} is {}, but {} in this model; it was written with another one", source.name(),
           field.name, got, field.value);
  }
}

// ---- The body.

// Bytes of all positions of a full layer; all its caches together.
std::uint64_t full_layer_bytes(const LayerState& layer, std::int64_t length) {
  const auto floats = [&](const KvView& view) {
    return length * view.shape.n_heads * view.shape.d;
  };
  if (const auto* a = std::get_if<AttentionState>(&layer))
    return 4 * static_cast<std::uint64_t>(floats(a->k.view()) + floats(a->v.view()));
  return 4 * static_cast<std::uint64_t>(floats(std::get<LatentState>(layer).kv.view()));
}

// Columns of the rows of a cache, which have n_heads * d of them.
struct Columns {
  std::int64_t first;
  std::int64_t n;
};

void write_columns(Backend& backend, const KvView& view, std::int64_t length,
                   const Columns& columns, SnapshotSink& sink) {
  const std::int64_t width = std::int64_t{view.shape.n_heads} * view.shape.d;
  std::vector<std::byte> rows;
  std::vector<float> floats, part;
  for_each_chunk(length, width * 4, [&](std::int64_t first, std::int64_t n) {
    rows.resize(static_cast<std::size_t>(kv_rows_bytes(view.shape, n)));
    floats.resize(static_cast<std::size_t>(n * width));
    part.resize(static_cast<std::size_t>(n * columns.n));
    export_kv_rows(backend, view, first, n, rows);
    decode_kv_rows(view.shape, rows, floats.data());
    for (std::int64_t i = 0; i < n; ++i)
      std::copy_n(floats.data() + i * width + columns.first, columns.n,
                  part.data() + i * columns.n);
    sink.write(std::as_bytes(std::span(part)));
  });
}

void write_layer(Backend& backend, const LayerState& layer, const MixerSpec& mixer,
                 std::int64_t length, SnapshotSink& sink) {
  const auto all = [](const KvView& view) {
    return Columns{0, std::int64_t{view.shape.n_heads} * view.shape.d};
  };
  if (const auto* a = std::get_if<AttentionState>(&layer)) {
    write_columns(backend, a->k.view(), length, all(a->k.view()), sink);
    write_columns(backend, a->v.view(), length, all(a->v.view()), sink);
  } else {
    const auto& spec = std::get<MlaSpec>(mixer);
    const KvView view = std::get<LatentState>(layer).kv.view();
    write_columns(backend, view, length, {0, spec.kv_rank}, sink);
    write_columns(backend, view, length, {spec.kv_rank, spec.d_rope}, sink);
  }
}

// to [n_columns, n_rows] = from [n_rows, n_columns], transposed
void transpose(const float* from, std::int64_t n_rows, std::int64_t n_columns, float* to) {
  for (std::int64_t r = 0; r < n_rows; ++r) {
    for (std::int64_t c = 0; c < n_columns; ++c) to[c * n_rows + r] = from[r * n_columns + c];
  }
}

// Ours is [head][key][value], that of the file [head][value][key].
void write_linear(Backend& backend, const DeltaState& state, const GatedDeltaSpec& spec,
                  SnapshotSink& sink) {
  sink.write({HostBytes(backend, whole(*state.conv)).data(), state.conv->bytes()});
  HostBytes s(backend, whole(*state.s));
  const auto* heads = static_cast<const float*>(static_cast<const void*>(s.data()));
  const std::int64_t head = std::int64_t{spec.d_key} * spec.d_value;
  std::vector<float> transposed(static_cast<std::size_t>(head));
  for (int h = 0; h < spec.n_value_heads; ++h) {
    transpose(heads + h * head, spec.d_key, spec.d_value, transposed.data());
    sink.write(std::as_bytes(std::span(transposed)));
  }
}

void read_linear(Backend& backend, DeltaState& state, const GatedDeltaSpec& spec,
                 const SnapshotSource& source, std::uint64_t offset) {
  HostBytes conv(backend, whole(*state.conv)), s(backend, whole(*state.s));
  source.read(offset, {conv.data(), state.conv->bytes()});
  offset += state.conv->bytes();
  auto* heads = static_cast<float*>(static_cast<void*>(s.data()));
  const std::int64_t head = std::int64_t{spec.d_key} * spec.d_value;
  std::vector<float> transposed(static_cast<std::size_t>(head));
  for (int h = 0; h < spec.n_value_heads; ++h) {
    source.read(offset + static_cast<std::uint64_t>(h * head) * 4,
                std::as_writable_bytes(std::span(transposed)));
    transpose(transposed.data(), spec.d_value, spec.d_key, heads + h * head);
  }
  conv.store();
  s.store();
}

// Puts rows of floats into a cache, exactly as a pass does.
void store_rows(Backend& backend, const KvView& view, std::span<const float> rows, std::int64_t n,
                std::int64_t first) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
  const auto memory = backend.allocate(rows.size_bytes(), MemoryKind::Device);
  const auto position_memory =
      backend.allocate(positions.size() * sizeof(std::int32_t), MemoryKind::Device);
  backend.upload(std::as_bytes(rows), whole(*memory));
  backend.upload(std::as_bytes(std::span(positions)), whole(*position_memory));
  const std::int64_t width = std::ssize(rows) / n;
  backend.store_kv({.cache = view,
                    .x = {memory.get(), 0, n, width, width},
                    .positions = {position_memory.get(), 0, 1, n, n, ElementType::I32}});
  backend.wait_for_all();
}

// Rows of a cache whose columns lie in the file in groups, one group after the other.
void read_rows(const KvView& view, std::int64_t length, std::initializer_list<Columns> groups,
               const SnapshotSource& source, std::uint64_t offset, Backend& backend) {
  const std::int64_t width = std::int64_t{view.shape.n_heads} * view.shape.d;
  std::vector<float> rows, part;
  for_each_chunk(length, width * 4, [&](std::int64_t first, std::int64_t n) {
    rows.resize(static_cast<std::size_t>(n * width));
    std::uint64_t begin = offset;
    for (const Columns& columns : groups) {
      part.resize(static_cast<std::size_t>(n * columns.n));
      source.read(begin + static_cast<std::uint64_t>(first * columns.n) * 4,
                  std::as_writable_bytes(std::span(part)));
      for (std::int64_t i = 0; i < n; ++i)
        std::copy_n(part.data() + i * columns.n, columns.n,
                    rows.data() + i * width + columns.first);
      begin += static_cast<std::uint64_t>(length * columns.n) * 4;
    }
    store_rows(backend, view, rows, n, first);
  });
}

void read_layer(LayerState& layer, const MixerSpec& mixer, std::int64_t length,
                const SnapshotSource& source, std::uint64_t offset, Backend& backend) {
  if (auto* a = std::get_if<AttentionState>(&layer)) {
    const KvView k = a->k.view();
    const std::int64_t width = std::int64_t{k.shape.n_heads} * k.shape.d;
    read_rows(k, length, {{0, width}}, source, offset, backend);
    offset += static_cast<std::uint64_t>(length * width) * 4;
    read_rows(a->v.view(), length, {{0, width}}, source, offset, backend);
  } else {
    const auto& spec = std::get<MlaSpec>(mixer);
    read_rows(std::get<LatentState>(layer).kv.view(), length,
              {{0, spec.kv_rank}, {spec.kv_rank, spec.d_rope}}, source, offset, backend);
  }
}

// The one length of all full layers, after walking over the whole body.
std::int64_t check_body(const Session& session, SnapshotVersion version,
                        const SnapshotSource& source) {
  std::uint64_t offset = header_bytes(version);
  std::optional<std::int32_t> length;
  const auto need = [&](int layer, std::uint64_t bytes) {
    if (bytes > source.size() - offset) {
      refuse(SnapshotFault::Truncated, "{}: truncated in layer {}, which needs {} bytes of {} left",
             source.name(), layer, bytes, source.size() - offset);
    }
  };
  for (int i = 0; i < session.n_layers(); ++i) {
    if (const auto* delta = std::get_if<DeltaState>(&session.layer(i))) {
      need(i, delta->bytes());
      offset += delta->bytes();
      continue;
    }
    need(i, 4);
    const auto n = read_field<std::int32_t>(source, offset);
    offset += 4;
    if (n < 0) {
      refuse(SnapshotFault::NegativeLength, "{}: layer {} has {} positions", source.name(), i, n);
    }
    if (n > session.max_length()) {
      refuse(SnapshotFault::LengthOverContext,
             "{}: layer {} has {} positions, but the context holds {} (raise it with -c)",
             source.name(), i, n, session.max_length());
    }
    need(i, full_layer_bytes(session.layer(i), n));
    offset += full_layer_bytes(session.layer(i), n);
    if (length.value_or(n) != n) {
      refuse(SnapshotFault::LengthsDiffer,
             "{}: layer {} has {} positions and a layer before it {}; a session has one length",
             source.name(), i, n, *length);
    }
    length = n;
  }
  return *length;  // check_header() has refused models without such a layer
}

void read_body(Session& session, const ModelConfig& config, std::int64_t length,
               std::uint64_t offset, const SnapshotSource& source) {
  Backend& backend = session.backend();
  for (int i = 0; i < session.n_layers(); ++i) {
    LayerState& layer = session.layer(i);
    const MixerSpec& mixer = config.layers[static_cast<std::size_t>(i)].mixer;
    if (auto* delta = std::get_if<DeltaState>(&layer)) {
      read_linear(backend, *delta, std::get<GatedDeltaSpec>(mixer), source, offset);
      offset += delta->bytes();
    } else {
      read_layer(layer, mixer, length, source, offset + 4, backend);
      offset += 4 + full_layer_bytes(layer, length);
    }
  }
}

}  // namespace

std::uint64_t mflx_bytes(const Session& session, const ModelConfig& config,
                         SnapshotVersion version) {
  fields_of(config, version);  // refuses what cannot be written
  if (session.length() > std::numeric_limits<std::int32_t>::max()) {
    refuse(SnapshotFault::Unsupported, "{} positions do not fit an MFLX snapshot; use version 3",
           session.length());
  }
  std::uint64_t bytes = header_bytes(version);
  for (int i = 0; i < session.n_layers(); ++i) {
    const auto* delta = std::get_if<DeltaState>(&session.layer(i));
    bytes += delta != nullptr ? delta->bytes()
                              : 4 + full_layer_bytes(session.layer(i), session.length());
  }
  return bytes;
}

void write_mflx(const Session& session, const ModelConfig& config, SnapshotVersion version,
                SnapshotSink& sink) {
  std::vector<std::byte> bytes;
  append_field(bytes, kSnapshotMagic);
  append_field(bytes, static_cast<std::uint32_t>(version));
  for (const Field& field : fields_of(config, version)) append_field(bytes, field.value);
  sink.write(bytes);
  for (int i = 0; i < session.n_layers(); ++i) {
    const MixerSpec& mixer = config.layers[static_cast<std::size_t>(i)].mixer;
    if (const auto* delta = std::get_if<DeltaState>(&session.layer(i))) {
      write_linear(session.backend(), *delta, std::get<GatedDeltaSpec>(mixer), sink);
      continue;
    }
    bytes.clear();
    append_field(bytes, static_cast<std::int32_t>(session.length()));
    sink.write(bytes);
    write_layer(session.backend(), session.layer(i), mixer, session.length(), sink);
  }
}

void read_mflx(Session& session, const ModelConfig& config, SnapshotVersion version,
               const SnapshotSource& source) {
  check_header(config, version, source);
  const std::int64_t length = check_body(session, version, source);
  const std::vector<TokenId> tokens(static_cast<std::size_t>(length), kUnknownToken);
  try {
    read_body(session, config, length, header_bytes(version), source);
    session.adopt(tokens);
  } catch (...) {  // half of it is there
    session.reset();
    throw;
  }
  if (length == 0) session.reset();  // whose state is known, whatever the file says
}

}  // namespace moeflux
