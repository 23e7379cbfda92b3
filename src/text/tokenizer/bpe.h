// Byte-pair encoding: the vocabulary of a model, its merges, and the encoding of one piece of text.
// Pieces of any length take O(n log n). Immutable after construction and shared freely between
// threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/text_index.h"

namespace moeflux {

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

  // For each merge in rank order: left, right.
  std::vector<std::pair<TokenId, TokenId>> merges_by_rank() const;

 private:
  class UnknownRun;
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
