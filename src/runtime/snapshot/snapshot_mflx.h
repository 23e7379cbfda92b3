// MFLX versions 1 and 2 (docs/SNAPSHOT.md): what runtime/snapshot/snapshot.h offers, for these two.
#pragma once

#include <cstdint>

#include "runtime/snapshot/snapshot_stream.h"

namespace moeflux {

// Throw SnapshotError(Unsupported) for a model that the version cannot hold.
std::uint64_t mflx_bytes(const Session& session, const ModelConfig& config,
                         SnapshotVersion version);
void write_mflx(const Session& session, const ModelConfig& config, SnapshotVersion version,
                SnapshotSink& sink);

// Magic and version are those.
void read_mflx(Session& session, const ModelConfig& config, SnapshotVersion version,
               const SnapshotSource& source);

}  // namespace moeflux
