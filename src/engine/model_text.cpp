// The text side of an engine: tokenizer, chat template, and which tokens end an answer.
#include "engine/model_text.h"

#include <cstdint>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "engine/engine.h"

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
std::unique_ptr<Tokenizer> load_tokenizer(const ModelSource& source) {
  const TextAssets& text = source.text();
  const auto make = [](Tokenizer tokenizer) {
    return std::make_unique<Tokenizer>(std::move(tokenizer));
  };
  if (!text.tokenizer_json.empty())
    return make(Tokenizer::from_json_file(text.tokenizer_json, text.tokenizer_config));
  if (!text.tiktoken_model.empty()) {
    return make(Tokenizer::from_tiktoken_file(text.tiktoken_model, text.tokenizer_config));
  }
  if (!text.gguf.empty()) return make(Tokenizer::from_gguf_file(text.gguf));
  if (!text.tokenizer_bin.empty()) return make(Tokenizer::from_bpet_file(text.tokenizer_bin));
  if (!text.vocab_bin.empty()) return make(Tokenizer::from_vocab_bin_file(text.vocab_bin));
  return nullptr;
}

std::unique_ptr<ChatTemplate> load_chat_template(const ModelSource& source,
                                                 const Tokenizer* tokenizer, bool with_tools) {
  const Json& chat_template = source.text().chat_template;
  if (chat_template.is_null()) return nullptr;
  std::map<std::string, std::string> special_tokens;
  if (tokenizer != nullptr) special_tokens = tokenizer->special_tokens();
  return std::make_unique<ChatTemplate>(select_chat_template(chat_template, with_tools),
                                        source.path() + ": chat template",
                                        std::move(special_tokens));
}

void Engine::load_text() {
  tokenizer_ = load_tokenizer(*source_);
  chat_template_ = load_chat_template(*source_, tokenizer_.get(), /*with_tools=*/false);
  tool_template_ = load_chat_template(*source_, tokenizer_.get(), /*with_tools=*/true);
  if (tokenizer_ != nullptr) {
    for (const AddedToken& token : tokenizer_->added_tokens()) {
      if (token.id >= config().n_vocab) {
        fail(Errc::BadInput,
             "{}: the tokenizer has token {} (\"{}\"), but the model's vocabulary has only {} rows",
             path(), token.id, token.content, config().n_vocab);
      }
    }
  }
  collect_stop_tokens();
}

void Engine::collect_stop_tokens() {
  stop_tokens_ = find_stop_tokens(*source_, *model_.family, tokenizer_.get());
}

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
