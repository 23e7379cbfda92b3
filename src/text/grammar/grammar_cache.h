// The compiled grammars of one vocabulary that were used last: a client that asks for the same
// schema again gets the masks of the first time. Thread-safe; grammars that were returned stay
// valid after their eviction.
//
// Grammars grow while they are used, each within its TokenMaskLimits. Every lookup evicts the least
// recently used ones until the others fit into max_bytes; an evicted grammar that is still in use
// drops its masks. So memory is bounded by max_bytes plus the grammars in use.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/token_masks.h"

namespace moeflux {

struct GrammarCacheLimits {
  std::size_t max_grammars = 64;
  std::size_t max_bytes = std::size_t{64} << 20;
  TokenMaskLimits of_each = {};
  // Compiling one takes some hundred bytes for each, and is done for one at a time.
  std::size_t max_states = kMaxGrammarStates;
};

class GrammarCache {
 public:
  explicit GrammarCache(std::shared_ptr<const TokenTrie> trie,
                        const GrammarCacheLimits& limits = {});

  // Each throws what parsing and compiling the grammar throws.
  std::shared_ptr<TokenMasks> gbnf(std::string_view text, const GbnfSchemas& schemas = {});
  std::shared_ptr<TokenMasks> json_schema(const Json& schema,
                                          const JsonSchemaOptions& options = {});
  std::shared_ptr<TokenMasks> json_object(const JsonSchemaOptions& options = {});

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<TokenMasks> masks;
  };
  std::shared_ptr<TokenMasks> find_or_make(std::string key, const std::function<Grammar()>& make);
  std::shared_ptr<TokenMasks> find(const std::string& key);
  void keep_within_limits();  // the first entry stays in any case

  std::shared_ptr<const TokenTrie> trie_;
  GrammarCacheLimits limits_;
  std::mutex compiling_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace moeflux
