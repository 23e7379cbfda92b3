// A token's number in the vocabulary of a model.
#pragma once

#include <cstdint>

namespace moeflux {

using TokenId = std::int32_t;

// Tables are indexed by id, so an id bounds memory: a file with a larger one is refused.
inline constexpr TokenId kMaxTokenId = (1 << 24) - 1;

}  // namespace moeflux
