// The merges of a byte-pair encoding: from two neighbouring tokens to the token they make and its
// rank. A flat open-addressing table, because looking pairs up is what encoding spends its time on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/token_id.h"

namespace moeflux {

class MergeTable {
 public:
  static constexpr std::uint32_t kNoMerge = ~std::uint32_t{0};  // ranks are smaller

  struct Entry {
    TokenId left = kFree, right = kFree;
    std::uint32_t rank = kNoMerge;
    TokenId result = 0;

    bool is_merge() const { return rank != kNoMerge; }
  };

  // Room for up to `capacity` pairs.
  explicit MergeTable(std::size_t capacity = 0) : slots_(std::bit_ceil(capacity * 2 + 1)) {}

  // Of equal pairs the last counts.
  void put(const Entry& entry) {
    Entry& place = slots_[slot(entry.left, entry.right)];
    if (!place.is_merge()) MOEFLUX_ASSERT(++used_ < slots_.size());
    place = entry;
  }

  // rank is kNoMerge when the two do not merge.
  const Entry& find(TokenId left, TokenId right) const { return slots_[slot(left, right)]; }

  const std::vector<Entry>& slots() const { return slots_; }  // free ones among them

 private:
  static constexpr TokenId kFree = -1;

  std::size_t slot(TokenId left, TokenId right) const {
    const std::size_t mask = slots_.size() - 1;
    const std::uint64_t key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
                              static_cast<std::uint32_t>(right);
    auto at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (slots_[at].left != kFree && (slots_[at].left != left || slots_[at].right != right)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  std::vector<Entry> slots_;
  std::size_t used_ = 0;
};

}  // namespace moeflux
