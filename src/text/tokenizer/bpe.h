// Byte-pair encoding: the vocabulary of a model, its merges, and the encoding of one piece of text.
// Pieces of any length take O(n log n). Immutable after construction and shared freely between
// threads.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/token_id.h"

namespace moeflux {

// A map from the text of a token to its id. Open addressing over one block of text: a vocabulary
// has a quarter of a million entries and every merge is looked up three times at load, so cache
// misses are what counts.
class TextIndex {
 public:
  TextIndex() = default;

  // Room for `n_texts`.
  explicit TextIndex(std::size_t n_texts) : slots_(std::bit_ceil(n_texts * 2 + 1)) {}

  // False, and nothing changes, when the text is there already. Texts together stay under 4 GiB.
  bool add(std::string_view text, TokenId id) {
    Slot& slot = slots_[find_slot(text)];
    if (slot.id >= 0) return false;
    slot = {hash(text), static_cast<std::uint32_t>(texts_.size()),
            static_cast<std::uint32_t>(text.size()), id};
    texts_ += text;
    return true;
  }

  std::optional<TokenId> find(std::string_view text) const {
    const TokenId id = slots_[find_slot(text)].id;
    return id < 0 ? std::nullopt : std::optional(id);
  }

  template <class F>
  void for_each(F f) const {  // f(text, id), in no order
    for (const Slot& slot : slots_) {
      if (slot.id >= 0) f(text_of(slot), slot.id);
    }
  }

 private:
  struct Slot {
    std::uint32_t hash = 0, begin = 0, length = 0;
    TokenId id = -1;  // < 0: free
  };

  static std::uint32_t hash(std::string_view text) {
    return static_cast<std::uint32_t>(std::hash<std::string_view>()(text));
  }
  std::string_view text_of(const Slot& slot) const {
    return std::string_view(texts_).substr(slot.begin, slot.length);
  }
  std::size_t find_slot(std::string_view text) const {
    const std::uint32_t wanted = hash(text);
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = wanted & mask;
    while (slots_[at].id >= 0 && (slots_[at].hash != wanted || text_of(slots_[at]) != text)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  std::string texts_;
  std::vector<Slot> slots_ = std::vector<Slot>(1);  // never full
};

// The merges: from two neighbouring tokens to the token they make and its rank. A flat
// open-addressing table, because encoding spends its time on looking pairs up.
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

struct VocabEntry {
  std::string text;
  TokenId id;
};

struct MergeRule {
  std::string left, right;
};

struct BpeOptions {
  bool byte_level =
      true;  // the vocabulary is written in the byte-level alphabet and pieces are bytes
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // an unknown character becomes tokens <0x00>..<0xFF>
  bool fuse_unknown = false;   // neighbouring unknown characters share one unknown token
  std::string unknown;         // token for unknown characters; when empty, they are dropped
};

class BpeModel {
 public:
  // Texts must differ. `origin` names the file in messages.
  BpeModel(const std::vector<VocabEntry>& vocab, BpeOptions options, const std::string& origin);

  // The merges in order of rank. Every part and every result must be a token.
  void add_merges(const std::vector<MergeRule>& merges, const std::string& origin);

  // Instead of merges: two neighbours merge when together they are a token, the smallest id first,
  // as tiktoken does.
  void add_merges_by_id();

  // Likewise the one with the highest score first, as SentencePiece does; `scores` are those of
  // `vocab`. Tokens that stand for a byte of a fallback, or for what is not known,
  // neither merge nor come of it.
  void add_merges_by_score(const std::vector<VocabEntry>& vocab, const std::vector<float>& scores);

  // Reused between pieces to save allocations; belongs to one thread.
  struct Scratch {
    struct Symbol {
      TokenId id;
      std::int32_t previous, next;  // -1: none
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t at;  // index of the left symbol
      TokenId result;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
    std::vector<TokenId> ids;
  };

  // Appends the tokens of one piece. Throws LimitExceeded for a piece of 2^31 bytes or more.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  // By its bytes when byte_level, otherwise by its text.
  std::optional<TokenId> find(std::string_view token) const;

  // By the text the vocabulary file has for it, in the byte-level alphabet when byte_level.
  std::optional<TokenId> find_as_written(const std::string& text) const;

 private:
  class UnknownRun;
  template <class RankOf>
  void add_all_merges(RankOf rank_of);
  void start_bytes(std::string_view piece, std::vector<TokenId>& ids) const;
  void start_characters(std::string_view piece, std::vector<TokenId>& ids) const;
  bool start_fallback(std::string_view character, std::vector<TokenId>& ids) const;
  void merge_short(std::vector<TokenId>& ids) const;
  void merge_long(std::vector<TokenId>& ids, Scratch& scratch) const;

  BpeOptions options_;
  TextIndex index_;
  TextIndex literals_;                     // byte level: texts outside of the alphabet
  std::array<TokenId, 256> byte_token_{};  // one byte, or the byte of a fallback; -1: none
  std::optional<TokenId> unknown_;
  MergeTable merges_;
};

}  // namespace moeflux
