// How parts of sessions are named in the prefix store.
//
// Tokens are cut into blocks of a fixed number of positions. The key of a block is a hash of the
// key before it and of its tokens, so it names everything from position 0 to its end; the key
// before the first block is the root, a hash of the model and how it is computed. A state at any
// position has the key of the last whole block before it as its parent. Every name carries key,
// parent and end, so that the names alone say what continues what.
//
// A name is a hint to the right file and nothing more: files carry their tokens, which are
// compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

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

}  // namespace moeflux
