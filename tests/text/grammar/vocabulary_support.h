// Vocabularies for tests of grammars, and ways to choose among allowed tokens.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "support/paths.h"
#include "support/random.h"
#include "text/grammar/grammar_support.h"
#include "text/grammar/token_masks.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux::test {

inline std::shared_ptr<const TokenTrie> trie_of(const Tokenizer& tokenizer,
                                                std::vector<TokenId> end_tokens = {}) {
  return std::make_shared<TokenTrie>(
      tokenizer.n_ids(),
      [&](TokenId id) {
        const bool ends = std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end();
        return ends                     ? TokenTrie::Kind::Unused
               : tokenizer.is_added(id) ? TokenTrie::Kind::Control
                                        : TokenTrie::Kind::Text;
      },
      [&](TokenId id) { return tokenizer.token_bytes(id); });
}

inline Tokenizer demo_tokenizer() {
  return Tokenizer::from_json_file(source_path("models/demo/tokenizer.json"),
                                   source_path("models/demo/tokenizer_config.json"));
}

inline std::shared_ptr<const TokenTrie> demo_trie() {
  const Tokenizer tokenizer = demo_tokenizer();
  return trie_of(tokenizer, {*tokenizer.eos()});
}

inline TokenId any_allowed(std::span<const std::uint8_t> allowed, Random& random) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i] != 0) ids.push_back(static_cast<TokenId>(i));
  }
  if (ids.empty()) return -1;
  return ids[static_cast<std::size_t>(
      random.integer(0, static_cast<std::int64_t>(ids.size()) - 1))];
}

// The end of something if there is one. Where a letter may stand, a quote ends a string; elsewhere
// it begins one.
inline TokenId closing_allowed(std::span<const std::uint8_t> allowed, const TokenTrie& trie,
                               Random& random) {
  const auto find = [&](std::string_view text) -> TokenId {
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (allowed[i] != 0 && trie.bytes(static_cast<TokenId>(i)) == text) {
        return static_cast<TokenId>(i);
      }
    }
    return -1;
  };
  if (find("q") >= 0 && find("\"") >= 0) return find("\"");
  if (find("q") >= 0) {  // the pattern asks for something before the end
    const TokenId id = find(std::string(1, static_cast<char>(random.integer(' ', '~'))));
    return id >= 0 ? id : any_allowed(allowed, random);
  }
  for (const std::string_view text : {"}", "]", "\"", "0"}) {
    if (const TokenId id = find(text); id >= 0) return id;
  }
  return any_allowed(allowed, random);
}

}  // namespace moeflux::test
