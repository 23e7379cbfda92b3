// A map from the text of a token to its id. Open addressing over one block of text: a vocabulary
// has a quarter of a million entries and every merge is looked up three times at load, so cache
// misses are what counts.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace moeflux {

class TextIndex {
 public:
  TextIndex() = default;

  // Room for `n_texts`.
  explicit TextIndex(std::size_t n_texts) : slots_(std::bit_ceil(n_texts * 2 + 1)) {}

  // False, and nothing changes, when the text is there already. Texts together stay under 4 GiB.
  bool add(std::string_view text, TokenId id) {
    Slot& slot = slots_[find_slot(text)];
    if (slot.id >= 0) return false;
    slot = {hash(text), static_cast<std::uint32_t>(texts_.size()),
            static_cast<std::uint32_t>(text.size()), id};
    texts_ += text;
    return true;
  }

  std::optional<TokenId> find(std::string_view text) const {
    const TokenId id = slots_[find_slot(text)].id;
    return id < 0 ? std::nullopt : std::optional(id);
  }

  template <class F>
  void for_each(F f) const {  // f(text, id), in no order
    for (const Slot& slot : slots_) {
      if (slot.id >= 0) f(text_of(slot), slot.id);
    }
  }

 private:
  struct Slot {
    std::uint32_t hash = 0, begin = 0, length = 0;
    TokenId id = -1;  // < 0: free
  };

  static std::uint32_t hash(std::string_view text) {
    return static_cast<std::uint32_t>(std::hash<std::string_view>()(text));
  }
  std::string_view text_of(const Slot& slot) const {
    return std::string_view(texts_).substr(slot.begin, slot.length);
  }
  std::size_t find_slot(std::string_view text) const {
    const std::uint32_t wanted = hash(text);
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = wanted & mask;
    while (slots_[at].id >= 0 && (slots_[at].hash != wanted || text_of(slots_[at]) != text)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  std::string texts_;
  std::vector<Slot> slots_ = std::vector<Slot>(1);  // never full
};

}  // namespace moeflux
