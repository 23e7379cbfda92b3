// Version 3 of snapshots (docs/SNAPSHOT.md): what runtime/snapshot/snapshot.h offers, for this one.
#pragma once

#include <cstdint>

#include "runtime/snapshot/snapshot_stream.h"

namespace moeflux {

std::uint64_t v3_bytes(const Session& session);
void write_v3(const Session& session, const SnapshotModel& model, SnapshotSink& sink);

// Magic and version are those.
void read_v3(Session& session, const SnapshotModel& model, const SnapshotSource& source);

}  // namespace moeflux
