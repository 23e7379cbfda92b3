// A string that knows which of its bytes are data. Every string operation of the template language
// is built from substr() and append(), so the marks follow the bytes through slicing, joining and
// replacing without the operations having to think about them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/marked_text.h"

namespace moeflux::jinja {

enum class Origin : bool { Markup, Data };

class MarkedString {
 public:
  MarkedString() = default;
  MarkedString(std::string bytes, Origin origin);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool has_data() const { return !data_.empty(); }
  Origin origin_at(std::size_t byte) const;

  // What it costs to keep this string.
  std::size_t memory_bytes() const;

  MarkedString substr(std::size_t begin, std::size_t end) const;
  MarkedString substr(std::size_t begin) const { return substr(begin, size()); }

  void append(const MarkedString& other) { append(other, 0, other.size()); }
  void append(const MarkedString& other, std::size_t begin, std::size_t end);
  void append(std::string_view bytes, Origin origin);

  MarkedText take() && { return {std::move(bytes_), std::move(data_)}; }

 private:
  using Range = MarkedText::Range;

  // The first data range that ends after `byte`.
  std::vector<Range>::const_iterator range_after(std::size_t byte) const;
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<Range> data_;  // ascending, disjoint, not adjacent, none empty
};

}  // namespace moeflux::jinja
