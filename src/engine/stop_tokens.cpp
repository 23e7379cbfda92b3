#include "engine/stop_tokens.h"

#include <cstdint>
#include <set>
#include <string_view>

namespace moeflux {
namespace {

// "eos_token_id" is a number or a list of numbers.
void add_ids(const Json& config, std::set<TokenId>& ids) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return;
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) return;
    const auto value = id.get<std::int64_t>();
    if (value >= 0 && value <= kMaxTokenId) ids.insert(static_cast<TokenId>(value));
  };
  if (found->is_array()) {
    for (const Json& id : *found) add(id);
  } else {
    add(*found);
  }
}

}  // namespace

std::vector<TokenId> find_stop_tokens(const ModelSource& source, const Family& family,
                                      const Tokenizer* tokenizer) {
  std::set<TokenId> ids;
  add_ids(source.generation_config(), ids);
  add_ids(source.config(), ids);
  const auto text = source.config().find("text_config");
  if (text != source.config().end() && text->is_object()) add_ids(*text, ids);
  if (tokenizer != nullptr) {
    if (const auto eos = tokenizer->eos()) ids.insert(*eos);
    for (const std::string_view name : family.end_tokens) {
      const auto id = tokenizer->find_token(name);
      if (id && tokenizer->is_added(*id)) ids.insert(*id);
    }
  }
  return {ids.begin(), ids.end()};
}

}  // namespace moeflux
