// The header of MFLX versions 1 and 2: the sizes that a snapshot and a model must agree on.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/snapshot/snapshot_stream.h"

namespace moeflux {

// Behind magic and version, in the order of the file.
struct MflxField {
  const char* name;
  std::uint32_t value;
};

std::uint64_t mflx_header_bytes(SnapshotVersion version);

// Throws SnapshotError(Unsupported) for a model that the version cannot hold: one size per kind of
// layer, and every interval-th layer a full one, is all that the header can say.
std::vector<MflxField> mflx_fields(const ModelConfig& config, SnapshotVersion version);

// Throws SnapshotError (also BufferTooSmall, ShapeMismatch).
void check_mflx_header(const ModelConfig& config, SnapshotVersion version,
                       const SnapshotSource& source);

}  // namespace moeflux
