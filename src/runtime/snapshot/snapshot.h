// Snapshots: a session as bytes, in memory or in a file, to continue from later (docs/SNAPSHOT.md
// has every byte).
//
//   V1, V2  the formats of the original moeflux (MFLX), byte for byte. Always f32: sessions of
//   other
//           KV types are decoded on writing and encoded on reading, which is exact for f16 and bf16
//           but rounds for q8. They know neither the model's weights nor the tokens: after reading,
//           every token of the session is kUnknownToken. V1 has no latent attention.
//   V3      our own: names the model, holds the tokens, the MTP head's rows and the caches in the
//           session's own KV type; checksums find every changed byte. A session read back continues
//           bit for bit as the written one would.
//
// Reading checks everything before it changes anything: a snapshot that is refused leaves the
// session as it was. Only where a file can be read once and not a second time is the session reset.
// Bytes that follow a snapshot are ignored. Checkpoints are not part of a snapshot, and reading one
// forgets those of the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/model_config.h"
#include "runtime/session.h"

namespace moeflux {

enum class SnapshotVersion : std::uint32_t { V1 = 1, V2 = 2, V3 = 3 };

enum class SnapshotFault {
  BufferTooSmall,     // writing: for the snapshot; reading: for its header
  BadMagic,           // it is no snapshot
  BadVersion,         // of a version this program does not read
  ShapeMismatch,      // a size in the header is not the model's
  NegativeLength,     // a layer has less than no positions
  LengthOverContext,  // it has more positions than the session's context
  LengthsDiffer,      // layers of different lengths, which no session can have
  Truncated,          // it ends before its last layer or section does
  Damaged,            // a checksum does not fit, or the header contradicts itself
  OtherModel,         // it was written with other weights
  OtherKvType,        // its caches cannot become the session's without loss
  Unsupported,        // this version cannot hold such a model
};

class SnapshotError : public Error {
 public:
  SnapshotError(SnapshotFault fault, const std::string& message);
  SnapshotFault fault() const { return fault_; }

 private:
  SnapshotFault fault_;
};

// What a snapshot must agree with.
struct SnapshotModel {
  const ModelConfig* config = nullptr;  // that the session was made with
  std::string_view identity;            // source/model_identity.h; at most 64 bytes
};

// What write_snapshot() takes now: it grows with the session's length, not with its context.
// This and the writers throw Error(BadInput) for a session whose last pass failed, and
// SnapshotError (Unsupported, BufferTooSmall).
std::uint64_t snapshot_bytes(const Session& session, const SnapshotModel& model,
                             SnapshotVersion version = SnapshotVersion::V3);

// Returns how many bytes it has written.
std::uint64_t write_snapshot(const Session& session, const SnapshotModel& model,
                             SnapshotVersion version, std::span<std::byte> out);

// Of any version; returns which. Throws SnapshotError.
SnapshotVersion read_snapshot(Session& session, const SnapshotModel& model,
                              std::span<const std::byte> in);

// The same with files, in little memory. A file appears whole or not at all (base/atomic_file.h).
// Throw Error(Io) or Error(NotFound), too.
void save_snapshot(const std::string& path, const Session& session, const SnapshotModel& model,
                   SnapshotVersion version = SnapshotVersion::V3);
SnapshotVersion load_snapshot(const std::string& path, Session& session,
                              const SnapshotModel& model);

}  // namespace moeflux
