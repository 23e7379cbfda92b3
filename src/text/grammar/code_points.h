// A set of Unicode code points as sorted ranges. Surrogates are never members: no UTF-8 has them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace moeflux {

class CodePoints {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t kLast = 0x10FFFF;

  CodePoints() = default;
  CodePoints(char32_t first, char32_t last) { add(first, last); }
  static CodePoints all() { return {0, kLast}; }
  static CodePoints of(std::u32string_view characters);

  void add(char32_t first, char32_t last);  // first <= last <= kLast
  void add(const CodePoints& other);
  CodePoints complement() const;
  CodePoints without(const CodePoints& other) const;
  CodePoints common(const CodePoints& other) const;

  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  std::uint32_t count() const;
  const std::vector<Range>& ranges() const { return ranges_; }  // ascending, never adjacent
  bool operator==(const CodePoints&) const = default;

 private:
  void add_plain(char32_t first, char32_t last);
  std::vector<Range> ranges_;
};

// The UTF-8 encodings of a set: every element is a sequence of 1 to 4 ranges of bytes, and the
// sequences have no byte string in common.
struct ByteSpan {
  std::uint8_t first, last;
  auto operator<=>(const ByteSpan&) const = default;
};
std::vector<std::vector<ByteSpan>> utf8_sequences(const CodePoints& set);

}  // namespace moeflux
