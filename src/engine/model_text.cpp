// The text side of an engine: tokenizer, chat template, and which tokens end an answer.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace moeflux {
namespace {

// "eos_token_id" is a number or a list of numbers.
void add_ids(const Json& config, std::vector<TokenId>& ids) {
  const auto it = config.find("eos_token_id");
  if (it == config.end()) return;
  const auto add = [&](const Json& id) {
    if (id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() <= INT32_MAX) {
      ids.push_back(id.get<TokenId>());
    }
  };
  if (it->is_array()) {
    for (const Json& id : *it) add(id);
  } else {
    add(*it);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const ModelSource& source) {
  const TextAssets& text = source.text();
  const auto make = [](Tokenizer tokenizer) { return std::make_unique<Tokenizer>(std::move(tokenizer)); };
  if (!text.tokenizer_json.empty()) return make(Tokenizer::from_json_file(text.tokenizer_json, text.tokenizer_config));
  if (!text.tiktoken_model.empty()) {
    return make(Tokenizer::from_tiktoken_file(text.tiktoken_model, text.tokenizer_config));
  }
  if (!text.tokenizer_bin.empty()) return make(Tokenizer::from_bpet_file(text.tokenizer_bin));
  if (!text.vocab_bin.empty()) return make(Tokenizer::from_vocab_bin_file(text.vocab_bin));
  return nullptr;
}

std::unique_ptr<ChatTemplate> load_chat_template(const ModelSource& source, const Tokenizer* tokenizer,
                                                 bool with_tools) {
  const Json& chat_template = source.text().chat_template;
  if (chat_template.is_null()) return nullptr;
  std::map<std::string, std::string> special_tokens;
  if (tokenizer != nullptr) special_tokens = tokenizer->special_tokens();
  return std::make_unique<ChatTemplate>(select_chat_template(chat_template, with_tools),
                                        source.path() + ": chat template", std::move(special_tokens));
}

void Engine::load_text() {
  tokenizer_ = load_tokenizer(*source_);
  chat_template_ = load_chat_template(*source_, tokenizer_.get(), /*with_tools=*/false);
  tool_template_ = load_chat_template(*source_, tokenizer_.get(), /*with_tools=*/true);
  if (tokenizer_ != nullptr) {
    for (const AddedToken& token : tokenizer_->added_tokens()) {
      if (token.id >= config().n_vocab) {
        fail(Errc::BadInput, "{}: the tokenizer has token {} (\"{}\"), but the model's vocabulary has only {} rows",
             path(), token.id, token.content, config().n_vocab);
      }
    }
  }
  collect_stop_tokens();
}

// Files disagree on what ends an answer, and stopping at only one of them makes models run on: the union of all.
void Engine::collect_stop_tokens() {
  std::vector<TokenId> ids;
  add_ids(source_->generation_config(), ids);
  add_ids(source_->config(), ids);
  const auto text = source_->config().find("text_config");
  if (text != source_->config().end() && text->is_object()) add_ids(*text, ids);
  if (tokenizer_ != nullptr) {
    if (const auto eos = tokenizer_->eos()) ids.push_back(*eos);
    for (const std::string_view name : model_.family->end_tokens) {
      const auto id = tokenizer_->find_token(name);
      if (id && tokenizer_->is_added(*id)) ids.push_back(*id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  stop_tokens_ = std::move(ids);
}

}  // namespace moeflux
