// Operations on whole strings that both the methods of str and the filters offer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {

// Where `wanted` begins in `text` at or after `from`, or npos; in time linear in the text.
std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view wanted,
                      std::size_t from = 0);
// Where the last `wanted` begins. Long ones cost more steps.
std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view wanted);

enum class Side { Left, Right, Both };
// Strips characters of `characters`, or whitespace when that is null.
MarkedString strip(Runtime& runtime, const MarkedString& text, Side side,
                   const MarkedString* characters);

MarkedString change_case(Runtime& runtime, const MarkedString& text, Case wanted);
// The first character in title case, the others in lower case.
MarkedString capitalize(Runtime& runtime, const MarkedString& text);

// `count` < 0: every occurrence.
MarkedString replace(Runtime& runtime, const MarkedString& text, const MarkedString& from,
                     const MarkedString& to, std::int64_t count);

// str.splitlines(); the line ends stay on with `keep_ends`.
std::vector<MarkedString> split_lines(Runtime& runtime, const MarkedString& text, bool keep_ends);

// Python's 'a %s b' % values and 'a {} b'.format(values), with width, precision, alignment and the
// conversions s, r, d and f. What else Python's formats can say is refused by name.
Value percent_format(Runtime& runtime, const Value& format, const Value& arguments);
Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace moeflux::jinja
