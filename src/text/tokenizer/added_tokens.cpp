#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/unicode.h"

namespace moeflux {
namespace {

std::size_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Start of the character that ends before `at`.
std::size_t previous_character(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (byte_at(text, at) & 0xC0) == 0x80);
  return at;
}

bool stands_alone(std::string_view text, ByteRange range) {
  const bool word_before =
      range.begin > 0 &&
      is_word(decode_utf8(text, previous_character(text, range.begin)).code_point);
  const bool word_after =
      range.end < text.size() && is_word(decode_utf8(text, range.end).code_point);
  return !word_before && !word_after;
}

std::size_t skip_space_left(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t before = previous_character(text, at);
    if (!is_white_space(decode_utf8(text, before).code_point)) break;
    at = before;
  }
  return at;
}

std::size_t skip_space_right(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Step step = decode_utf8(text, at);
    if (!is_white_space(step.code_point)) break;
    at += step.length;
  }
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (AddedToken& token : tokens) {
    if (!tokens_.empty() && tokens_.back().content == token.content) {
      tokens_.back() = std::move(token);
    } else {
      tokens_.push_back(std::move(token));
    }
  }
  // std::string compares as unsigned bytes, so equal first bytes are neighbours in ascending order.
  for (const AddedToken& token : tokens_) ++first_by_byte_[byte_at(token.content, 0) + 1];
  for (std::size_t b = 0; b < 256; ++b) first_by_byte_[b + 1] += first_by_byte_[b];
}

// At each position, narrows the sorted tokens to those that agree with the text, byte by byte.
AddedTokenMatcher::Found AddedTokenMatcher::find(std::string_view text, ByteRange within) const {
  for (std::size_t begin = within.begin; begin < within.end; ++begin) {
    const std::size_t b = byte_at(text, begin);
    auto low = tokens_.begin() + static_cast<std::ptrdiff_t>(first_by_byte_[b]);
    auto high = tokens_.begin() + static_cast<std::ptrdiff_t>(first_by_byte_[b + 1]);
    Found longest{nullptr, {}};
    for (std::size_t depth = 1; low != high; ++depth) {
      if (low->content.size() == depth) {  // the shortest of those that share a prefix comes first
        longest = {&*low, {begin, begin + depth}};
        ++low;
      }
      if (begin + depth >= within.end) break;
      const std::size_t next = byte_at(text, begin + depth);
      const auto byte_less = [depth](const AddedToken& token, std::size_t byte) {
        return byte_at(token.content, depth) < byte;
      };
      low = std::lower_bound(low, high, next, byte_less);
      high = std::lower_bound(low, high, next + 1, byte_less);
    }
    if (longest.token != nullptr) return longest;
  }
  return {nullptr, {}};
}

std::vector<TokenOrText> AddedTokenMatcher::split(std::string_view text,
                                                  const std::vector<ByteRange>& searched) const {
  std::vector<TokenOrText> parts;
  std::size_t done = 0;
  for (ByteRange within : searched) {
    if (tokens_.empty()) break;
    while (true) {
      const auto [token, match] = find(text, within);
      if (token == nullptr) break;
      within.begin = match.end;
      if (token->single_word && !stands_alone(text, match)) continue;
      ByteRange taken = match;
      // White space that an earlier token took stays with it.
      if (token->lstrip) taken.begin = std::max(skip_space_left(text, match.begin), done);
      if (token->rstrip) taken.end = skip_space_right(text, match.end);
      if (done < taken.begin) parts.push_back({-1, {done, taken.begin}});
      parts.push_back({token->id, taken});
      done = taken.end;
    }
  }
  if (done < text.size()) parts.push_back({-1, {done, text.size()}});
  return parts;
}

}  // namespace moeflux
