// Tokens that are found in text as a whole, before it is normalized and split: control tokens and
// user additions.
//
// A matcher holds the tokens of one stage: those matched in raw text, or those matched in
// normalized text. Where several match, the leftmost and of these the longest wins.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer/regex.h"

namespace moeflux {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the white space on its left along
  bool rstrip = false;       // and on its right
  bool normalized = false;   // matched in normalized text
  bool special = false;      // left out of text that is shown
};

// A part of a text: a token found in it, or (id < 0) the text between.
struct TokenOrText {
  TokenId id;
  ByteRange range;
};

class AddedTokenMatcher {
 public:
  static constexpr std::size_t kMaxContentBytes = 1024;  // matching takes O(text x longest content)

  AddedTokenMatcher() = default;
  // Contents are not empty and no longer than kMaxContentBytes; of equal ones the last counts.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Cuts `text` at the tokens that lie inside one of the `searched` ranges (ascending, disjoint).
  // White space and word borders around them are judged in the whole text.
  std::vector<TokenOrText> split(std::string_view text,
                                 const std::vector<ByteRange>& searched) const;

 private:
  struct Found {
    const AddedToken* token;
    ByteRange range;
  };
  Found find(std::string_view text, ByteRange within) const;

  std::vector<AddedToken> tokens_;                // sorted by content
  std::array<std::size_t, 257> first_by_byte_{};  // tokens_ that begin with byte b: [b], [b + 1]
};

}  // namespace moeflux
