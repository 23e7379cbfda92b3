#include "runtime/snapshot/snapshot.h"

#include "base/atomic_file.h"
#include "base/file.h"
#include "runtime/snapshot/snapshot_stream.h"

namespace moeflux {
namespace {

Errc code_of(SnapshotFault fault) {
  switch (fault) {
    case SnapshotFault::LengthOverContext:
      return Errc::LimitExceeded;
    case SnapshotFault::BadVersion:
    case SnapshotFault::Unsupported:
      return Errc::Unsupported;
    default:
      return Errc::BadInput;
  }
}

class MemorySink : public SnapshotSink {
 public:
  explicit MemorySink(std::span<std::byte> out) : out_(out) {}
  void write(std::span<const std::byte> bytes) override {
    MOEFLUX_ASSERT(bytes.size() <= out_.size());
    std::copy(bytes.begin(), bytes.end(), out_.begin());
    out_ = out_.subspan(bytes.size());
  }

 private:
  std::span<std::byte> out_;  // what is still to be written
};

class FileSink : public SnapshotSink {
 public:
  explicit FileSink(AtomicFile& file) : file_(file) {}
  void write(std::span<const std::byte> bytes) override {
    const void* data = bytes.data();
    file_.write({static_cast<const char*>(data), bytes.size()});
  }

 private:
  AtomicFile& file_;
};

class MemorySource : public SnapshotSource {
 public:
  explicit MemorySource(std::span<const std::byte> in) : in_(in) {}
  std::string name() const override { return "snapshot"; }
  std::uint64_t size() const override { return in_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    MOEFLUX_ASSERT(offset <= in_.size() && out.size() <= in_.size() - offset);
    std::copy_n(in_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  }

 private:
  std::span<const std::byte> in_;
};

class FileSource : public SnapshotSource {
 public:
  explicit FileSource(const std::string& path) : file_(path) {}
  std::string name() const override { return file_.path(); }
  std::uint64_t size() const override { return file_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    file_.read(offset, out);
  }

 private:
  File file_;
};

void write_to(SnapshotSink& sink, const Session& session, const SnapshotModel& model,
              SnapshotVersion version) {
  if (version == SnapshotVersion::V3) return write_v3(session, model, sink);
  write_mflx(session, *model.config, version, sink);
}

SnapshotVersion read_from(const SnapshotSource& source, Session& session,
                          const SnapshotModel& model) {
  MOEFLUX_ASSERT(model.config->n_layers() == session.n_layers());
  if (source.size() < 8) {
    refuse(SnapshotFault::BufferTooSmall, "{}: has {} bytes, and a header at least 8",
           source.name(), source.size());
  }
  if (const auto magic = read_field<std::uint32_t>(source, 0); magic != kSnapshotMagic) {
    refuse(SnapshotFault::BadMagic, "{}: is no snapshot (it begins with {:08x}, not {:08x})",
           source.name(), magic, kSnapshotMagic);
  }
  const auto number = read_field<std::uint32_t>(source, 4);
  if (number < 1 || number > 3) {
    refuse(SnapshotFault::BadVersion, "{}: has version {}, but this program reads 1 to 3",
           source.name(), number);
  }
  const auto version = static_cast<SnapshotVersion>(number);
  if (version == SnapshotVersion::V3) {
    read_v3(session, model, source);
  } else {
    read_mflx(session, *model.config, version, source);
  }
  return version;
}

}  // namespace

SnapshotError::SnapshotError(SnapshotFault fault, const std::string& message)
    : Error(code_of(fault), message), fault_(fault) {}

std::uint64_t snapshot_bytes(const Session& session, const SnapshotModel& model,
                             SnapshotVersion version) {
  session.check(0);  // a session in the middle of a pass has no state to speak of
  MOEFLUX_ASSERT(model.config->n_layers() == session.n_layers());
  return version == SnapshotVersion::V3 ? v3_bytes(session)
                                        : mflx_bytes(session, *model.config, version);
}

std::uint64_t write_snapshot(const Session& session, const SnapshotModel& model,
                             SnapshotVersion version, std::span<std::byte> out) {
  const std::uint64_t bytes = snapshot_bytes(session, model, version);
  if (out.size() < bytes) {
    refuse(SnapshotFault::BufferTooSmall, "a snapshot needs {} bytes, but the buffer has {}", bytes,
           out.size());
  }
  MemorySink sink(out);
  write_to(sink, session, model, version);
  return bytes;
}

SnapshotVersion read_snapshot(Session& session, const SnapshotModel& model,
                              std::span<const std::byte> in) {
  return read_from(MemorySource(in), session, model);
}

void save_snapshot(const std::string& path, const Session& session, const SnapshotModel& model,
                   SnapshotVersion version) {
  snapshot_bytes(session, model, version);  // refuses what cannot be written before a file is there
  AtomicFile file(path, FileAccess::Private);
  FileSink sink(file);
  write_to(sink, session, model, version);
  file.commit();
}

SnapshotVersion load_snapshot(const std::string& path, Session& session,
                              const SnapshotModel& model) {
  return read_from(FileSource(path), session, model);
}

}  // namespace moeflux
