// The header of version 3 of snapshots as data, and what must hold before any of it is believed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/snapshot/snapshot_stream.h"

namespace moeflux {

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

// `model` may be empty when only sizes are asked for.
V3Header v3_header_of(const Session& session, const SnapshotModel& model);
std::vector<std::byte> v3_header_text(const V3Header& header);

// Throws SnapshotError when it is too short, damaged, or longer than the source has bytes for.
V3Header read_v3_header(const SnapshotSource& source);
// Throws SnapshotError when the session cannot take it in.
void check_v3_header(const V3Header& header, const Session& session, const SnapshotModel& model,
                     const SnapshotSource& source);

}  // namespace moeflux
