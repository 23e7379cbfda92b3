// The tokens of a vocabulary as trees over their bytes, laid out in the order of a walk: the nodes
// below a node follow it, so a walk that drops a branch jumps over it.
//
// Plain tokens have a tree of their own: whole characters only, at most kMaxPlain of them, without
// quotes, backslashes and control characters. They are most of a vocabulary, and inside of a JSON
// string nothing but their length matters (PlainSteps).
//
// Immutable; one per tokenizer, shared by all grammars.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/grammar/byte_automaton.h"

namespace moeflux {

class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte;
    std::uint16_t depth;   // length of the bytes that lead here, 1 for the first byte
    std::uint32_t end;     // the first node that is not below this one
    std::uint32_t tokens;  // where its tokens begin
  };
  class Tree {
   public:
    std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
    std::span<const TokenId> tokens_at(std::size_t node) const {
      const std::uint32_t begin = nodes_[node].tokens;
      return std::span(ids_).subspan(begin, nodes_[node + 1].tokens - begin);
    }

   private:
    friend class TokenTrie;
    std::vector<Node> nodes_;   // and one behind the last
    std::vector<TokenId> ids_;  // by bytes
  };
  static constexpr std::size_t kMaxTokenBytes = 4096;
  static constexpr std::size_t kMaxPlain = 16;

  enum class Kind {
    Text,     // its bytes are what it says
    Control,  // a marker: only where a literal of a grammar spells it
    Unused,   // never: an id without a token, or one that ends an answer
  };

  // `kind` and `bytes` are asked for every id below n_ids. Tokens that are no part of any UTF-8
  // text, or longer than kMaxTokenBytes, are left out.
  TokenTrie(std::size_t n_ids, const std::function<Kind(TokenId)>& kind,
            const std::function<std::string_view(TokenId)>& bytes);

  std::size_t n_ids() const { return bytes_begin_.size() - 1; }
  std::string_view bytes(TokenId id) const;  // of a text token; "" for all others
  const std::bitset<256>& single_bytes() const { return single_bytes_; }  // that are tokens
  std::span<const GrammarMarker> markers() const { return markers_; }

  const Tree& plain() const { return plain_; }
  const Tree& other() const { return other_; }
  // The plain tokens of at most so many characters, as bits: [n_ids / 8, rounded up].
  std::span<const std::uint8_t> plain_up_to(std::size_t n_characters) const {
    return plain_up_to_[n_characters];
  }
  std::size_t max_depth() const { return max_depth_; }

 private:
  Tree make_tree(std::vector<TokenId> ids);
  void note_plain(TokenId id, std::size_t n_characters);

  std::string bytes_;
  std::vector<std::size_t> bytes_begin_;  // by id, and the end
  std::bitset<256> single_bytes_;
  std::vector<GrammarMarker> markers_;
  Tree plain_, other_;
  std::array<std::vector<std::uint8_t>, kMaxPlain + 1> plain_up_to_;
  std::size_t max_depth_ = 0;
};

// A character that stands for itself in a JSON string.
constexpr bool is_plain(char32_t c) {
  return c >= 0x20 && c != U'"' && c != U'\\';
}

}  // namespace moeflux
