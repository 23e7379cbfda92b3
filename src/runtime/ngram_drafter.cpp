#include "runtime/ngram_drafter.h"

#include <algorithm>

namespace moeflux {
namespace {

// A collision only makes a bad draft.
std::uint64_t hash_of(std::span<const TokenId> ngram) {
  std::uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const TokenId token : ngram) {
    hash ^= static_cast<std::uint32_t>(token);
    hash *= 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

void NgramDrafter::index(std::span<const TokenId> tokens) {
  const auto [ours, theirs] =
      std::mismatch(seen_.begin(), seen_.end(), tokens.begin(), tokens.end());
  if (ours != seen_.end()) {  // cut back or another text; entries behind the cut would be wrong
    for (auto& ends : ends_) ends.clear();
    seen_.clear();
  }
  for (std::size_t end = seen_.size() + 1; end <= tokens.size(); ++end) {
    for (std::size_t n = kShortest; n <= kLongest && n <= end; ++n)
      ends_[n][hash_of(tokens.subspan(end - n, n))] = end;
  }
  seen_.insert(seen_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(seen_.size()),
               tokens.end());
}

void NgramDrafter::draft(std::span<const TokenId> tokens, TokenId next, int count,
                         std::vector<TokenId>& drafts) {
  drafts.clear();
  index(tokens);
  TokenId ngram[kLongest];
  for (std::size_t n = kLongest; n >= kShortest; --n) {
    if (tokens.size() + 1 < n) continue;
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(n - 1), tokens.end(), ngram);
    ngram[n - 1] = next;
    const auto found = ends_[n].find(hash_of({ngram, n}));
    if (found == ends_[n].end()) continue;
    const std::size_t begin = found->second;
    const std::size_t end = std::min(begin + static_cast<std::size_t>(count), tokens.size());
    drafts.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                  tokens.begin() + static_cast<std::ptrdiff_t>(end));
    if (!drafts.empty()) return;
  }
}

}  // namespace moeflux
