#include "text/tokenizer/tokenizer_config.h"

#include <charconv>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace moeflux {
namespace {

TokenId parse_id(const std::string& text, const std::string& origin) {
  TokenId id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0 || id > kMaxTokenId) {
    fail(Errc::BadInput, "{}: \"{}\" is not a token id from 0 to {}", origin, text, kMaxTokenId);
  }
  return id;
}

// Adds tokens that the spec does not list yet. What tokenizer.json says about a token comes first.
class MissingTokens {
 public:
  explicit MissingTokens(TokenizerSpec& spec) : spec_(spec) {
    for (const AddedToken& token : spec.added_tokens) known_.insert(token.content);
  }
  void add(AddedToken token) {
    if (known_.insert(token.content).second) spec_.added_tokens.push_back(std::move(token));
  }
  // A token that has a role is special even where the file lists it in the vocabulary only.
  void add_vocab_with_roles() {
    std::unordered_set<std::string> roles;
    for (const auto& [name, content] : spec_.special_tokens) roles.insert(content);
    for (const VocabEntry& entry : spec_.vocab) {
      if (entry.text.empty() || !roles.contains(entry.text)) continue;
      AddedToken token;
      token.content = entry.text;
      token.id = entry.id;
      token.special = true;
      add(std::move(token));
    }
  }

 private:
  TokenizerSpec& spec_;
  std::unordered_set<std::string> known_;
};

}  // namespace

AddedToken read_added_token(const Json& json, const std::string& origin) {
  const JsonFields fields(json, origin);
  AddedToken token;
  token.content = fields.string("content");
  token.single_word = fields.boolean_or("single_word", false);
  token.lstrip = fields.boolean_or("lstrip", false);
  token.rstrip = fields.boolean_or("rstrip", false);
  token.special = fields.boolean_or("special", false);
  token.normalized = fields.boolean_or("normalized", !token.special);
  return token;
}

void read_tokenizer_config(const std::string& path, TokenizerSpec& spec) {
  const Json config = read_json_file(path);
  const JsonFields fields(config, path);
  MissingTokens missing(spec);
  if (const Json* tokens = fields.find("added_tokens_decoder")) {
    const std::string origin = path + ": added_tokens_decoder";
    if (!tokens->is_object()) fail(Errc::BadInput, "{}: not an object", origin);
    for (const auto& [key, value] : tokens->items()) {
      AddedToken token = read_added_token(value, fmt::format("{}[{}]", origin, key));
      token.id = parse_id(key, origin);
      missing.add(std::move(token));
    }
  }
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    const bool wrapped = value.is_object() && value.contains("content");
    const Json& content = wrapped ? value["content"] : value;
    if (content.is_string()) spec.special_tokens[key] = content.get<std::string>();
  }
  missing.add_vocab_with_roles();
  spec.add_bos = fields.boolean_or("add_bos_token", spec.add_bos);
  spec.add_eos = fields.boolean_or("add_eos_token", spec.add_eos);
}

}  // namespace moeflux
