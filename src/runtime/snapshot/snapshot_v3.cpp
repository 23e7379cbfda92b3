#include "runtime/snapshot/snapshot_v3.h"

#include <limits>

#include "runtime/host_bytes.h"
#include "runtime/snapshot/kv_rows.h"
#include "runtime/snapshot/session_image.h"
#include "runtime/snapshot/snapshot_v3_header.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

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
  return v3_header_of(session, {}).total_bytes;
}

void write_v3(const Session& session, const SnapshotModel& model, SnapshotSink& sink) {
  const V3Header header = v3_header_of(session, model);
  sink.write(v3_header_text(header));
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
  const V3Header header = read_v3_header(source);
  check_v3_header(header, session, model, source);
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
