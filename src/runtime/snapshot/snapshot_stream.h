// The formats of snapshots, and what they are written with: where bytes go and come from,
// little-endian fields, and the size of the pieces that pass through memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/kv_cache.h"
#include "runtime/snapshot/snapshot.h"

namespace moeflux {

static_assert(std::endian::native == std::endian::little, "states are copied as they are");

inline constexpr std::uint32_t kSnapshotMagic = 0x4D464C58;

template <class... Args>
[[noreturn]] void refuse(SnapshotFault fault, fmt::format_string<Args...> format, Args&&... args) {
  throw SnapshotError(fault, fmt::format(format, std::forward<Args>(args)...));
}

class SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;  // appends
};

class SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;
  virtual std::string name() const = 0;  // for messages
  virtual std::uint64_t size() const = 0;
  // The bytes must lie inside. Throws Error(Io).
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

template <class T>
void append_field(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T field_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.subspan(offset, sizeof value).data(), sizeof value);
  return value;
}

template <class T>
T read_field(const SnapshotSource& source, std::uint64_t offset) {
  std::byte bytes[sizeof(T)];
  source.read(offset, bytes);
  return field_at<T>(bytes, 0);
}

// Bytes that pass through memory at once, but for single positions that take more.
inline constexpr std::int64_t kSnapshotChunk = 1 << 20;

// Calls visit(first, n) with consecutive runs of positions.
template <class Visit>
void for_each_chunk(std::int64_t n_positions, std::int64_t bytes_each, Visit visit) {
  const std::int64_t most = std::max<std::int64_t>(1, kSnapshotChunk / bytes_each);
  for (std::int64_t first = 0; first < n_positions; first += most)
    visit(first, std::min(most, n_positions - first));
}

// What runtime/snapshot/snapshot.h offers, for versions 1 and 2 and for version 3. Magic and
// version of what is read are right. All throw SnapshotError, for a model that the version cannot
// hold, too.
std::uint64_t mflx_bytes(const Session& session, const ModelConfig& config,
                         SnapshotVersion version);
void write_mflx(const Session& session, const ModelConfig& config, SnapshotVersion version,
                SnapshotSink& sink);
void read_mflx(Session& session, const ModelConfig& config, SnapshotVersion version,
               const SnapshotSource& source);
std::uint64_t v3_bytes(const Session& session);
void write_v3(const Session& session, const SnapshotModel& model, SnapshotSink& sink);
void read_v3(Session& session, const SnapshotModel& model, const SnapshotSource& source);

}  // namespace moeflux
