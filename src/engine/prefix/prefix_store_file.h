// One file of the prefix store. It appears under its name whole or not at all, says what it holds
// and for which tokens, and ends with a checksum of everything before.
//
//   offset  size      what
//        0     8      "MFXPREFX"
//        8     4      version, 1
//       12     4      part: 0 kv, 1 state, 2 mtp
//       16     8      parent        } those of its name
//       24     8      key           }
//       32     8      first: rows of positions from here to `end` are inside
//       40     8      end
//       48     4      bytes of the identity
//       52     4      0
//       56     8      bytes of the payload
//       64            identity; tokens of positions 0 to end, 4 bytes each; payload; XXH3 (8 bytes)
//
// All numbers are little-endian. Nothing of a file is believed before it was compared with what is
// expected: sizes come from the caller, never from the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/atomic_file.h"
#include "base/file.h"
#include "engine/prefix/prefix_store_key.h"
#include "source/checksum.h"

namespace moeflux {

// What a file is expected to be.
struct PrefixFileInfo {
  std::string identity;  // of the model and how it is computed
  PrefixName name;
  std::int64_t first = 0;           // position of its first row
  std::span<const TokenId> tokens;  // of positions 0 to name.end
  std::uint64_t payload_bytes = 0;

  std::uint64_t file_bytes() const;
};

class PrefixFileWriter {
 public:
  PrefixFileWriter(const std::string& path, const PrefixFileInfo& info);  // throws Error(Io)
  void write(std::span<const std::byte> payload);
  void commit();  // after exactly payload_bytes

 private:
  void put(std::span<const std::byte> bytes);

  AtomicFile file_;
  ChecksumStream checksum_;
  std::uint64_t payload_left_;
};

class PrefixFileReader {
 public:
  // Throws Error: NotFound or Io when it cannot be read, BadInput when it is not what is expected.
  PrefixFileReader(const std::string& path, const PrefixFileInfo& info);
  void read(std::span<std::byte> payload);  // the next bytes
  // After exactly payload_bytes. What was read counts only when this returns: throws
  // Error(BadInput) when a byte is wrong.
  void finish();

 private:
  void get(std::span<std::byte> bytes);

  File file_;
  ChecksumStream checksum_;
  std::uint64_t offset_ = 0;
  std::uint64_t payload_left_;
};

// What a file says of itself, after all of its bytes were read and found to fit its checksum and
// its name. Throws Error(BadInput) when it is damaged, NotFound or Io when it cannot be read.
struct PrefixFileSummary {
  std::string identity;
  PrefixName name;
};
PrefixFileSummary check_prefix_file(const std::string& path);

// Only the identity, from the beginning of the file; "" when it has none.
std::string peek_prefix_identity(const std::string& path) noexcept;

}  // namespace moeflux
