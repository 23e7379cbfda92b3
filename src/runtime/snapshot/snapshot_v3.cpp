// Version 3 of snapshots (docs/SNAPSHOT.md).
#include <array>

#include "runtime/host_bytes.h"
#include "runtime/snapshot/kv_rows.h"
#include "runtime/snapshot/session_image.h"
#include "runtime/snapshot/snapshot_stream.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

// ---- The header as data, and what must hold before any of it is believed.

// Followed by the XXH3-64 of its bytes.
struct V3Section {
  std::string_view name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct V3Header {
  enum Part : std::size_t { Tokens, Rows, MtpRows, Recurrent };
  static constexpr std::size_t kParts = 4;

  std::string identity;
  std::uint64_t shape = 0;  // hash of the layers' sizes
  KvType kv_type = KvType::F32;
  std::uint32_t n_layers = 0;
  std::int64_t length = 0;
  std::int64_t mtp_start = 0;
  std::int64_t mtp_length = 0;
  std::array<V3Section, kParts> sections;
  std::uint64_t total_bytes = 0;
};

constexpr std::size_t kIdentityBytes = 64;
constexpr std::size_t kHeaderBytes = 160;
constexpr std::array<std::string_view, V3Header::kParts> kNames = {
    "tokens", "keys and values", "rows of the MTP head", "recurrent states"};
// Stored: never to be renumbered.
constexpr std::array<KvType, 4> kKvTypes = {KvType::F32, KvType::F16, KvType::BF16, KvType::Q8};

std::string describe(const AttentionSpec& spec) {
  return fmt::format("attention {} {}", spec.n_kv_heads, spec.d_head);
}
std::string describe(const GatedDeltaSpec& spec) {
  return fmt::format("delta {} {} {} {} {}", spec.n_key_heads, spec.n_value_heads, spec.d_key,
                     spec.d_value, spec.conv_width);
}
std::string describe(const MlaSpec& spec) {
  return fmt::format("latent {} {}", spec.kv_rank, spec.d_rope);
}
std::string describe(const DenseFfnSpec&) {
  return "dense";
}
std::string describe(const MoeSpec& spec) {
  return fmt::format("moe {} {}", spec.n_experts, spec.top_k);
}

// Of all that shapes the states, experts per token included: fewer of them give other states.
std::uint64_t shape_hash(const ModelConfig& config) {
  const auto text = [](const auto& spec) { return describe(spec); };
  std::string all;
  for (const LayerSpec& layer : config.layers)
    all += std::visit(text, layer.mixer) + ", " + std::visit(text, layer.ffn) + "\n";
  return checksum(all);
}

std::uint64_t rows_bytes(const std::vector<KvView>& caches, KvType type, std::int64_t n) {
  std::uint64_t bytes = 0;
  for (const KvView& view : caches) {
    KvShape shape = view.shape;
    shape.type = type;
    bytes += kv_rows_bytes(shape, n);
  }
  return bytes;
}

// Sections follow each other, each with its checksum.
void place_sections(V3Header& header) {
  std::uint64_t offset = kHeaderBytes;
  for (std::size_t i = 0; i < V3Header::kParts; ++i) {
    header.sections[i].name = kNames[i];
    header.sections[i].offset = offset;
    offset += header.sections[i].bytes + sizeof(std::uint64_t);
  }
  header.total_bytes = offset;
}

void check_lengths(const V3Header& header, const Session& session, const std::string& name) {
  if (header.length < 0) {
    refuse(SnapshotFault::NegativeLength, "{}: has {} positions", name, header.length);
  }
  if (header.length > session.max_length()) {
    refuse(SnapshotFault::LengthOverContext,
           "{}: has {} positions, but the context holds {} (raise it with -c)", name, header.length,
           session.max_length());
  }
  if (header.mtp_length < 0 || header.mtp_start < 0 || header.mtp_length > header.length ||
      header.mtp_start > header.length - header.mtp_length) {
    refuse(SnapshotFault::Damaged, "{}: says that its MTP head has seen {} rows from {} on, of {}",
           name, header.mtp_length, header.mtp_start, header.length);
  }
}

void check_sections(const V3Header& header, const Session& session, const std::string& name) {
  const auto check = [&](V3Header::Part part, std::uint64_t want) {
    if (header.sections[part].bytes == want) return;
    refuse(SnapshotFault::Damaged, "{}: its {} have {} bytes, but {} positions need {}", name,
           kNames[part], header.sections[part].bytes, header.length, want);
  };
  check(V3Header::Tokens, static_cast<std::uint64_t>(header.length) * sizeof(TokenId));
  check(V3Header::Rows, rows_bytes(kv_caches(session), header.kv_type, header.length));
  if (session.has_mtp())
    check(V3Header::MtpRows, rows_bytes(mtp_caches(session), header.kv_type, header.mtp_length));
  check(V3Header::Recurrent, recurrent_image_bytes(session));
}

// `model` may be empty when only sizes are asked for.
V3Header header_of(const Session& session, const SnapshotModel& model) {
  V3Header header;
  if (model.config != nullptr) header.shape = shape_hash(*model.config);
  MOEFLUX_ASSERT(model.identity.size() <= kIdentityBytes);
  header.identity = model.identity;
  header.kv_type = session.kv_type();
  header.n_layers = static_cast<std::uint32_t>(session.n_layers());
  header.length = session.length();
  // The row of a position needs the token after it; what lies beyond the tokens are drafts.
  if (session.has_mtp() && session.mtp_start() >= 0) {
    header.mtp_length =
        std::clamp<std::int64_t>(header.length - 1 - session.mtp_start(), 0, session.mtp_length());
    header.mtp_start = header.mtp_length > 0 ? session.mtp_start() : 0;
  }
  header.sections[V3Header::Tokens].bytes = session.tokens().size_bytes();
  header.sections[V3Header::Rows].bytes = rows_image_bytes(kv_caches(session), header.length);
  header.sections[V3Header::MtpRows].bytes =
      rows_image_bytes(mtp_caches(session), header.mtp_length);
  header.sections[V3Header::Recurrent].bytes = recurrent_image_bytes(session);
  place_sections(header);
  return header;
}

std::vector<std::byte> header_text(const V3Header& header) {
  std::vector<std::byte> bytes;
  append_field(bytes, kSnapshotMagic);
  append_field(bytes, static_cast<std::uint32_t>(SnapshotVersion::V3));
  append_field(bytes, header.total_bytes);
  std::array<char, kIdentityBytes> identity{};
  header.identity.copy(identity.data(), identity.size());
  append_field(bytes, identity);
  append_field(bytes, header.shape);
  const auto type = std::find(kKvTypes.begin(), kKvTypes.end(), header.kv_type);
  append_field(bytes, static_cast<std::uint32_t>(type - kKvTypes.begin()));
  append_field(bytes, header.n_layers);
  append_field(bytes, header.length);
  append_field(bytes, header.mtp_start);
  append_field(bytes, header.mtp_length);
  for (const V3Section& section : header.sections) append_field(bytes, section.bytes);
  append_field(bytes, checksum(bytes));
  MOEFLUX_ASSERT(bytes.size() == kHeaderBytes);
  return bytes;
}

V3Header read_header(const SnapshotSource& source) {
  if (source.size() < kHeaderBytes) {
    refuse(SnapshotFault::BufferTooSmall, "{}: has {} bytes, and its header alone {}",
           source.name(), source.size(), kHeaderBytes);
  }
  std::array<std::byte, kHeaderBytes> bytes{};
  source.read(0, bytes);
  const std::size_t n_checked = kHeaderBytes - sizeof(std::uint64_t);
  const auto type = field_at<std::uint32_t>(bytes, 88);
  V3Header header;
  const auto identity = field_at<std::array<char, kIdentityBytes>>(bytes, 16);
  header.identity.assign(identity.begin(), std::find(identity.begin(), identity.end(), '\0'));
  const bool printable = std::all_of(header.identity.begin(), header.identity.end(),
                                     [](char c) { return c > ' ' && c <= '~'; });
  if (field_at<std::uint64_t>(bytes, n_checked) != checksum(std::span(bytes).first(n_checked)) ||
      type >= kKvTypes.size() || !printable) {
    refuse(SnapshotFault::Damaged, "{}: its header is damaged", source.name());
  }
  header.shape = field_at<std::uint64_t>(bytes, 80);
  header.kv_type = kKvTypes[type];
  header.n_layers = field_at<std::uint32_t>(bytes, 92);
  header.length = field_at<std::int64_t>(bytes, 96);
  header.mtp_start = field_at<std::int64_t>(bytes, 104);
  header.mtp_length = field_at<std::int64_t>(bytes, 112);
  for (std::size_t i = 0; i < V3Header::kParts; ++i) {
    V3Section& section = header.sections[i];
    section.bytes = field_at<std::uint64_t>(bytes, 120 + 8 * i);
    if (section.bytes > source.size()) {  // so the sum of all does not overflow
      refuse(SnapshotFault::Truncated, "{}: truncated: its {} have {} bytes, and the whole only {}",
             source.name(), kNames[i], section.bytes, source.size());
    }
  }
  place_sections(header);
  if (header.total_bytes != field_at<std::uint64_t>(bytes, 8)) {
    refuse(SnapshotFault::Damaged, "{}: says that it has {} bytes, but its sections end at {}",
           source.name(), field_at<std::uint64_t>(bytes, 8), header.total_bytes);
  }
  for (const V3Section& section : header.sections) {
    const std::uint64_t end = section.offset + section.bytes + sizeof(std::uint64_t);
    if (end > source.size()) {
      refuse(SnapshotFault::Truncated, "{}: truncated in its {}, which end at byte {} of {}",
             source.name(), section.name, end, source.size());
    }
  }
  return header;
}

// Throws when the session cannot take it in.
void check_header(const V3Header& header, const Session& session, const SnapshotModel& model,
                  const SnapshotSource& source) {
  const std::string name = source.name();
  if (header.identity != model.identity) {
    refuse(SnapshotFault::OtherModel,
           "{}: was written with other weights (model {}, this one is {})", name, header.identity,
           model.identity);
  }
  if (header.n_layers != static_cast<std::uint32_t>(session.n_layers())) {
    refuse(SnapshotFault::ShapeMismatch, "{}: n_layers is {}, but {} in this model", name,
           header.n_layers, session.n_layers());
  }
  if (header.shape != shape_hash(*model.config)) {
    refuse(SnapshotFault::ShapeMismatch,
           "{}: sizes of layers are {:016x}, but {:016x} in this model; was it opened with another "
           "number of experts per token?",
           name, header.shape, shape_hash(*model.config));
  }
  // What any type stores, f32 can hold.
  if (header.kv_type != session.kv_type() && session.kv_type() != KvType::F32) {
    refuse(SnapshotFault::OtherKvType,
           "{}: has keys and values as {}, the session as {}; open it with {} or f32", name,
           kv_type_name(header.kv_type), kv_type_name(session.kv_type()),
           kv_type_name(header.kv_type));
  }
  check_lengths(header, session, name);
  check_sections(header, session, name);
}

// ---- Writing.

// Bytes of a section on their way into the sink; finish() appends their checksum.
class SectionWriter {
 public:
  explicit SectionWriter(SnapshotSink& sink) : sink_(sink) {}
  void write(std::span<const std::byte> bytes) {
    checksum_.add(bytes);
    sink_.write(bytes);
  }
  void finish() {
    std::vector<std::byte> bytes;
    append_field(bytes, checksum_.value());
    sink_.write(bytes);
  }

 private:
  SnapshotSink& sink_;
  ChecksumStream checksum_;
};

void write_rows(Backend& backend, const std::vector<KvView>& caches, std::int64_t n_rows,
                SnapshotSink& sink) {
  SectionWriter section(sink);
  std::vector<std::byte> rows;
  for (const KvView& view : caches) {
    const auto each = static_cast<std::int64_t>(kv_rows_bytes(view.shape, 1));
    for_each_chunk(n_rows, each, [&](std::int64_t first, std::int64_t n) {
      rows.resize(static_cast<std::size_t>(n * each));
      export_kv_rows(backend, view, first, n, rows);
      section.write(rows);
    });
  }
  section.finish();
}

// ---- Reading.

// A section of the source from its beginning on, and the checksum of what was read of it.
class SectionReader {
 public:
  SectionReader(const SnapshotSource& source, std::uint64_t offset)
      : source_(source), offset_(offset) {}
  void read(std::span<std::byte> out) {
    source_.read(offset_, out);
    offset_ += out.size();
    checksum_.add(out);
  }
  void finish(std::string_view name) {
    if (read_field<std::uint64_t>(source_, offset_) != checksum_.value()) {
      refuse(SnapshotFault::Damaged, "{}: its {} are damaged (the checksum does not fit)",
             source_.name(), name);
    }
  }

 private:
  const SnapshotSource& source_;
  std::uint64_t offset_;
  ChecksumStream checksum_;
};

void check_section(const SnapshotSource& source, const V3Section& section) {
  SectionReader reader(source, section.offset);
  std::vector<std::byte> chunk;
  for (std::uint64_t left = section.bytes; left > 0; left -= chunk.size()) {
    chunk.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left, kSnapshotChunk)));
    reader.read(chunk);
  }
  reader.finish(section.name);
}

std::vector<TokenId> read_tokens(const SnapshotSource& source, const V3Section& section,
                                 const ModelConfig& config) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(section.bytes / sizeof(TokenId)));
  SectionReader reader(source, section.offset);
  reader.read(std::as_writable_bytes(std::span(tokens)));
  reader.finish(section.name);
  for (const TokenId token : tokens) {
    if (token != kUnknownToken && (token < 0 || token >= config.n_vocab)) {
      refuse(SnapshotFault::Damaged, "{}: has token {}, but the model {} of them", source.name(),
             token, config.n_vocab);
    }
  }
  return tokens;
}

// Rows of type `stored`, which is that of the caches or becomes f32 there.
void read_rows(Backend& backend, const std::vector<KvView>& caches, KvType stored,
               std::int64_t n_rows, const SnapshotSource& source, const V3Section& section) {
  SectionReader reader(source, section.offset);
  std::vector<std::byte> rows;
  std::vector<float> floats;
  for (const KvView& view : caches) {
    KvShape shape = view.shape;
    shape.type = stored;
    const auto each = static_cast<std::int64_t>(kv_rows_bytes(shape, 1));
    for_each_chunk(n_rows, each, [&](std::int64_t first, std::int64_t n) {
      rows.resize(static_cast<std::size_t>(n * each));
      reader.read(rows);
      if (stored == view.shape.type) return import_kv_rows(backend, view, first, n, rows);
      floats.resize(static_cast<std::size_t>(n * shape.n_heads * shape.d));
      decode_kv_rows(shape, rows, floats.data());
      import_kv_rows(backend, view, first, n, std::as_bytes(std::span(floats)));
    });
  }
  reader.finish(section.name);
}

void read_recurrent(Session& session, const SnapshotSource& source, const V3Section& section) {
  SectionReader reader(source, section.offset);
  for (const Bytes& block : recurrent_blocks(session)) {
    HostBytes bytes(session.backend(), block);
    reader.read({bytes.data(), block.size});
    bytes.store();
  }
  reader.finish(section.name);
}

}  // namespace

std::uint64_t v3_bytes(const Session& session) {
  return header_of(session, {}).total_bytes;
}

void write_v3(const Session& session, const SnapshotModel& model, SnapshotSink& sink) {
  const V3Header header = header_of(session, model);
  sink.write(header_text(header));
  SectionWriter tokens(sink);
  tokens.write(std::as_bytes(session.tokens()));
  tokens.finish();
  write_rows(session.backend(), kv_caches(session), header.length, sink);
  write_rows(session.backend(), mtp_caches(session), header.mtp_length, sink);
  SectionWriter recurrent(sink);
  for (const Bytes& block : recurrent_blocks(session))
    recurrent.write({HostBytes(session.backend(), block).data(), block.size});
  recurrent.finish();
}

void read_v3(Session& session, const SnapshotModel& model, const SnapshotSource& source) {
  const V3Header header = read_header(source);
  check_header(header, session, model, source);
  for (const V3Section& section : header.sections) check_section(source, section);
  const auto tokens = read_tokens(source, header.sections[V3Header::Tokens], *model.config);
  const std::int64_t mtp_length = session.has_mtp() ? header.mtp_length : 0;
  try {
    // Checksums are compared again: what is read now need not be what was checked.
    read_rows(session.backend(), kv_caches(session), header.kv_type, header.length, source,
              header.sections[V3Header::Rows]);
    if (mtp_length > 0)
      read_rows(session.backend(), mtp_caches(session), header.kv_type, mtp_length, source,
                header.sections[V3Header::MtpRows]);
    read_recurrent(session, source, header.sections[V3Header::Recurrent]);
    session.adopt(tokens, mtp_length > 0 ? header.mtp_start : 0, mtp_length);
  } catch (...) {  // half of it is there
    session.reset();
    throw;
  }
}

}  // namespace moeflux
