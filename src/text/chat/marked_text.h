// Text that remembers which of its bytes are data (what a user, a tool or a document said) and
// which are markup (what the chat template itself wrote). Only markup may become control tokens, so
// data can never forge a turn.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

struct MarkedText {
  struct Range {
    std::size_t begin, end;  // bytes [begin, end)
    friend bool operator==(const Range&, const Range&) = default;
  };

  std::string text;
  std::vector<Range> data;  // ascending, disjoint, not adjacent, none empty

  static MarkedText all_markup(std::string text) { return {std::move(text), {}}; }
  static MarkedText all_data(std::string text) {
    const std::size_t n = text.size();
    return {std::move(text), n == 0 ? std::vector<Range>{} : std::vector<Range>{{0, n}}};
  }
};

}  // namespace moeflux
