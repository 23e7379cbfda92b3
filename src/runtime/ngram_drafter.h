// Drafts what follows by what followed before: where the last tokens of a sequence occurred
// earlier in it, the tokens after that occurrence are proposed. Costs next to nothing, and pays
// where text repeats itself: code that is edited, quotations, tables.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"

namespace moeflux {

class NgramDrafter {
 public:
  // Tokens that must agree: the more, the surer the draft; tried from the longest down.
  static constexpr int kLongest = 4, kShortest = 3;

  // At most `count` drafts of what follows `tokens` and then `next`, put into `drafts`. Calls for
  // one sequence may extend it or cut it back in between; what changed is noticed.
  void draft(std::span<const TokenId> tokens, TokenId next, int count,
             std::vector<TokenId>& drafts);

 private:
  void index(std::span<const TokenId> tokens);

  std::vector<TokenId> seen_;  // what the index was built from
  // Of each n-gram, the position after its latest occurrence.
  std::unordered_map<std::uint64_t, std::size_t> ends_[kLongest + 1];
};

}  // namespace moeflux
