// What a JSON body costs in memory, known before any of it is parsed.
//
// A few bytes of JSON can become a hundred times as many: three of an empty list are 60 when they
// are parsed, more when a template has printed them. So values are counted, not only bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace moeflux {

// Measured with bodies that are as bad as can be, and rounded up: what is parsed, its copies on the
// way to a prompt, what a template makes of it, and tokenizing that.
inline constexpr std::uint64_t kPriceOfValue = 640;
inline constexpr std::uint64_t kPriceOfTextByte = 64;

// Of the whole way of a body to tokens. Text that is no JSON has a price, too; parsing it fails
// before it is paid.
std::uint64_t body_price(std::string_view text);

// What a parsed value holds.
std::uint64_t json_bytes(const Json& value);

}  // namespace moeflux
