#include <charconv>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

// ---- tokenizer_config.json

// An added token without its id, as both files describe it.
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

// ---- tokenizer.json

namespace dom = simdjson::dom;

constexpr std::size_t kMaxDepth = 64;
constexpr std::uint64_t kMaxFileBytes = 256u << 20;

// The large parts, vocabulary and merges, are read from simdjson's tree.
class ModelReader {
 public:
  explicit ModelReader(TokenizerSpec& spec) : spec_(spec) {}

  void read(dom::object model) {
    bool has_vocab = false;
    bool has_merges = false;
    for (const auto [key, value] : model) {
      if (key == "type") {
        read_type(value);
      } else if (key == "vocab") {
        read_vocab(value);
        has_vocab = true;
      } else if (key == "merges") {
        read_merges(value);
        has_merges = true;
      } else {
        read_option(key, value);
      }
    }
    if (!has_vocab || !has_merges) {
      fail(Errc::BadInput, "{}: model has no {}", spec_.origin, has_vocab ? "merges" : "vocab");
    }
  }

 private:
  void read_type(dom::element value) const {
    std::string_view type;
    if (value.get(type) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: model.type is not a string", spec_.origin);
    }
    if (type != "BPE") {
      fail(Errc::Unsupported,
           "{}: the tokenizer model is of type {}; only byte-pair encoding (BPE) is supported",
           spec_.origin, type);
    }
  }

  void read_vocab(dom::element value) {
    dom::object vocab;
    if (value.get(vocab) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: model.vocab is not an object of token -> id", spec_.origin);
    }
    spec_.vocab.clear();
    spec_.vocab.reserve(vocab.size());
    for (const auto [text, id_value] : vocab) {
      std::int64_t id = 0;
      if (id_value.get(id) != simdjson::SUCCESS || id < 0 || id > kMaxTokenId) {
        fail(Errc::BadInput, "{}: model.vocab: the id of \"{}\" is {}, not an integer from 0 to {}",
             spec_.origin, text, std::string(simdjson::minify(id_value)).substr(0, 40),
             kMaxTokenId);
      }
      spec_.vocab.push_back({std::string(text), static_cast<TokenId>(id)});
    }
  }

  void read_merges(dom::element value) {
    dom::array merges;
    if (value.get(merges) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: model.merges is not a list", spec_.origin);
    }
    spec_.merges.clear();
    spec_.merges.reserve(merges.size());
    for (const dom::element element : merges) {
      std::string_view text;
      dom::array pair;
      if (element.get(text) == simdjson::SUCCESS) {
        read_merge_text(text);
      } else if (element.get(pair) == simdjson::SUCCESS) {
        read_merge_pair(pair);
      } else {
        bad_merge();
      }
    }
  }

  void read_merge_text(std::string_view text) {
    if (text.starts_with("#version")) return;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      bad_merge();
    }
    spec_.merges.push_back(
        {std::string(text.substr(0, space)), std::string(text.substr(space + 1))});
  }

  void read_merge_pair(dom::array pair) {
    std::string_view left, right;
    if (pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
        pair.at(1).get(right) != simdjson::SUCCESS) {
      bad_merge();
    }
    spec_.merges.push_back({std::string(left), std::string(right)});
  }

  [[noreturn]] void bad_merge() const {
    fail(Errc::BadInput, "{}: model.merges[{}] is neither \"a b\" nor [\"a\", \"b\"]", spec_.origin,
         spec_.merges.size());
  }

  void read_option(std::string_view key, dom::element value) {
    if (value.is_null()) return;
    if (key == "unk_token") {
      spec_.bpe.unknown = as_string(key, value);
    } else if (key == "fuse_unk") {
      spec_.bpe.fuse_unknown = as_bool(key, value);
    } else if (key == "byte_fallback") {
      spec_.bpe.byte_fallback = as_bool(key, value);
    } else if (key == "ignore_merges") {
      spec_.bpe.ignore_merges = as_bool(key, value);
    } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      if (!as_string(key, value).empty()) unsupported(key, value);
    } else if (key == "dropout") {
      double dropout = 0;
      if (value.get(dropout) != simdjson::SUCCESS || dropout != 0) unsupported(key, value);
    }
  }

  std::string as_string(std::string_view key, dom::element value) const {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: model.{} is not a string", spec_.origin, key);
    }
    return std::string(text);
  }

  bool as_bool(std::string_view key, dom::element value) const {
    bool flag = false;
    if (value.get(flag) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: model.{} is not true or false", spec_.origin, key);
    }
    return flag;
  }

  [[noreturn]] void unsupported(std::string_view key, dom::element value) const {
    fail(Errc::Unsupported, "{}: model.{} = {} is not supported", spec_.origin, key,
         std::string(simdjson::minify(value)).substr(0, 80));
  }

  TokenizerSpec& spec_;
};

void read_added_tokens(const Json& json, TokenizerSpec& spec) {
  if (json.is_null()) return;
  if (!json.is_array()) fail(Errc::BadInput, "{}: added_tokens is not a list", spec.origin);
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string origin = fmt::format("{}: added_tokens[{}]", spec.origin, i);
    AddedToken token = read_added_token(json[i], origin);
    token.id = static_cast<TokenId>(JsonFields(json[i], origin).integer("id", 0, kMaxTokenId));
    spec.added_tokens.push_back(std::move(token));
  }
}

// The small parts are read as Json, whose accessors name the field in every message.
Json to_json(dom::element element, const std::string& origin) {
  return parse_json(std::string(simdjson::minify(element)), origin);
}

void read_root(dom::object root, TokenizerSpec& spec) {
  bool has_model = false;
  for (const auto [key, value] : root) {
    const std::string origin = fmt::format("{}: {}", spec.origin, key);
    if (key == "model") {
      dom::object model;
      if (value.get(model) != simdjson::SUCCESS) fail(Errc::BadInput, "{}: not an object", origin);
      ModelReader(spec).read(model);
      has_model = true;
    } else if (key == "added_tokens") {
      read_added_tokens(to_json(value, origin), spec);
    } else if (key == "normalizer") {
      spec.normalizer = read_normalizer(to_json(value, origin), origin);
    } else if (key == "pre_tokenizer") {
      spec.pretokenizer = read_pretokenizer(to_json(value, origin), origin);
    } else if (key == "decoder") {
      spec.decoder = read_decoder(to_json(value, origin), origin);
    } else if (key == "post_processor") {
      read_post_processor(to_json(value, origin), origin, spec.prefix, spec.suffix);
    }
  }
  if (!has_model) fail(Errc::BadInput, "{}: has no \"model\"", spec.origin);
}

}  // namespace

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

TokenizerSpec read_tokenizer_json(const std::string& path) {
  TokenizerSpec spec;
  spec.origin = path;
  const std::string text = read_text_file(path, kMaxFileBytes);
  dom::parser parser;
  dom::element root;
  dom::object object;
  simdjson::error_code error = parser.allocate(text.size() + 1, kMaxDepth);
  if (error == simdjson::SUCCESS) error = parser.parse(text).get(root);
  if (error == simdjson::SUCCESS) error = root.get(object);
  if (error != simdjson::SUCCESS) {
    fail(Errc::BadInput, "{}: not a valid tokenizer.json: {}", path,
         simdjson::error_message(error));
  }
  read_root(object, spec);
  // When the pieces end up as bytes, the model reads bytes: the alphabet need not be written out
  // for each text.
  spec.bpe.byte_level = spec.pretokenizer.drop_final_bytes_to_visible();
  if (spec.bpe.byte_level) spec.decoder.byte_level = true;
  return spec;
}

Tokenizer Tokenizer::from_json_file(const std::string& tokenizer_json,
                                    const std::string& tokenizer_config) {
  TokenizerSpec spec = read_tokenizer_json(tokenizer_json);
  if (!tokenizer_config.empty()) read_tokenizer_config(tokenizer_config, spec);
  return Tokenizer(std::move(spec));
}

}  // namespace moeflux
