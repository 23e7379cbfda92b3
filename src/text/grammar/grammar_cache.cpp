#include "text/grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

std::string options_key(const JsonSchemaOptions& options) {
  std::string key = options.blanks == JsonBlanks::Some ? "blanks" : "dense";
  if (options.leading_newlines) key += "+newlines";
  return key + "\n";
}

}  // namespace

GrammarCache::GrammarCache(std::shared_ptr<const TokenTrie> trie, const GrammarCacheLimits& limits)
    : trie_(std::move(trie)), limits_(limits) {}

std::shared_ptr<TokenMasks> GrammarCache::gbnf(std::string_view text, const GbnfSchemas& schemas) {
  // JSON between the parts, so that no two grammars have one key.
  Json key = Json::array({text});
  for (const auto& [name, schema] : schemas) key.push_back(Json::array({name, schema}));
  return find_or_make("gbnf\n" + dump_json(key), [&] { return parse_gbnf(text, schemas); });
}

std::shared_ptr<TokenMasks> GrammarCache::json_schema(const Json& schema,
                                                      const JsonSchemaOptions& options) {
  return find_or_make("schema\n" + options_key(options) + dump_json(schema),
                      [&] { return json_schema_grammar(schema, options); });
}

std::shared_ptr<TokenMasks> GrammarCache::json_object(const JsonSchemaOptions& options) {
  return find_or_make("object\n" + options_key(options),
                      [&] { return json_object_grammar(options); });
}

std::shared_ptr<TokenMasks> GrammarCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.key == key; });
  if (at == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at);
  keep_within_limits();
  return at->masks;
}

void GrammarCache::keep_within_limits() {
  std::size_t n_kept = 0, bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.masks->bytes();
    if (n_kept > 0 && (bytes > limits_.max_bytes || n_kept == limits_.max_grammars)) break;
    ++n_kept;
  }
  while (entries_.size() > n_kept) {
    entries_.back().masks->forget();
    entries_.pop_back();
  }
}

// Compiles without the lock: a large grammar of one client does not hold up those whose grammar is
// known.
std::shared_ptr<TokenMasks> GrammarCache::find_or_make(std::string key,
                                                       const std::function<Grammar()>& make) {
  if (auto known = find(key)) return known;
  const std::lock_guard one_at_a_time(compiling_);
  if (auto known = find(key)) return known;
  auto automaton = std::make_shared<const ByteAutomaton>(
      compile_grammar(make(), trie_->markers(), limits_.max_states));
  auto masks = std::make_shared<TokenMasks>(std::move(automaton), trie_, limits_.of_each);
  const std::lock_guard lock(mutex_);
  entries_.push_front({std::move(key), masks});
  keep_within_limits();
  return masks;
}

}  // namespace moeflux
