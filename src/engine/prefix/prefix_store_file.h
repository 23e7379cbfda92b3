// The files of the prefix store: their names, and what is in them. A file appears under its name
// whole or not at all, says what it holds and for which tokens, and ends with a checksum of
// everything before.
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
//
// Names: tokens are cut into blocks of a fixed number of positions. The key of a block is a hash of
// the key before it and of its tokens, so it names everything from position 0 to its end; the key
// before the first block is the root, a hash of the model and how it is computed. A state at any
// position has the key of the last whole block before it as its parent. Every name carries key,
// parent and end, so that the names alone say what continues what. A name is a hint to the right
// file and nothing more: files carry their tokens, which are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/file.h"
#include "base/token_id.h"
#include "source/checksum.h"

namespace moeflux {

enum class PrefixPart {
  Kv,     // keys and values of a whole block
  State,  // recurrent state at a position, and the rows since the last whole block
  Mtp,    // rows of the MTP head that go with the Kv or State of the same name
};

struct PrefixName {
  PrefixPart part = PrefixPart::Kv;
  std::int64_t end = 0;  // positions [0, end) are named
  std::uint64_t parent = 0, key = 0;

  PrefixName as(PrefixPart other) const { return {other, end, parent, key}; }
  std::string text() const;  // "512-<parent>-<key>.kv"
  // Nothing for any other text: files of others are none of ours.
  static std::optional<PrefixName> parse(std::string_view text);
  friend bool operator==(const PrefixName&, const PrefixName&) = default;
};

// The names along one sequence of tokens, which must outlive this.
class PrefixKeys {
 public:
  PrefixKeys(std::uint64_t root, std::int64_t block, std::span<const TokenId> tokens);

  std::span<const TokenId> tokens() const { return tokens_; }
  std::int64_t n_blocks() const { return static_cast<std::int64_t>(chain_.size()) - 1; }
  std::int64_t block() const { return block_; }
  std::uint64_t key_after(std::int64_t n_blocks) const {
    return chain_[static_cast<std::size_t>(n_blocks)];
  }
  PrefixName block_name(std::int64_t index) const;  // the index-th block
  PrefixName state_name(std::int64_t position) const;

 private:
  std::int64_t block_;
  std::span<const TokenId> tokens_;
  std::vector<std::uint64_t> chain_;  // [n_blocks + 1], the root first
};

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
