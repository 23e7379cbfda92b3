#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/gguf_header.h"
#include "base/utf8.h"
#include "text/tokenizer/gguf_pretokenizers.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kLowLine = "\xE2\x96\x81";  // U+2581, a space in SentencePiece's texts

enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// The keys of the vocabulary, and what becomes of them.
class VocabularyReader {
 public:
  explicit VocabularyReader(const std::string& path) : header_(path) { spec_.origin = path; }

  TokenizerSpec read() {
    const std::string model = header_.string(key("model"));
    read_tokens();
    if (model == "gpt2") {
      read_byte_level();
    } else if (model == "llama") {
      read_sentence_pieces();
    } else if (model == "gemma4") {
      read_pieces_with_merges();
    } else {
      fail(Errc::Unsupported,
           "{}: \"{}\": \"{}\" is a kind of tokenizer that is not supported (supported: gpt2, "
           "llama, gemma4)",
           header_.path(), key("model"), model);
    }
    read_roles(model == "llama");
    return std::move(spec_);
  }

 private:
  static std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }
  [[noreturn]] void wrong_count(std::string_view name, std::uint64_t count) const {
    fail(Errc::BadInput, "{}: \"{}\" has {} values for {} tokens", header_.path(), key(name), count,
         tokens_.size());
  }

  void read_tokens() {
    const std::uint64_t count = header_.count(key("tokens"));
    if (count > static_cast<std::uint64_t>(kMaxTokenId)) {
      fail(Errc::LimitExceeded, "{}: has {} tokens, more than {}", header_.path(), count,
           kMaxTokenId);
    }
    tokens_ = header_.strings(key("tokens"));
    types_.assign(tokens_.size(), kNormal);
    if (header_.has(key("token_type"))) {
      if (header_.count(key("token_type")) != count)
        wrong_count("token_type", header_.count(key("token_type")));
      types_ = header_.integers(key("token_type"));
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (find_invalid_utf8(tokens_[i]) != std::string::npos)
        fail(Errc::BadInput, "{}: token {} is not UTF-8", header_.path(), i);
      const auto id = static_cast<TokenId>(i);
      if (types_[i] == kControl || types_[i] == kUserDefined) {
        add_added_token(id, types_[i] == kControl);
      } else if (types_[i] == kUnknown && !tokens_[i].empty()) {  // and for what is not known
        add_added_token(id, /*is_special=*/true);
        spec_.vocab.push_back({tokens_[i], id});
      } else if (types_[i] != kUnused && !tokens_[i].empty()) {
        spec_.vocab.push_back({tokens_[i], id});
      }
    }
  }

  void add_added_token(TokenId id, bool is_special) {
    const std::string& content = tokens_[static_cast<std::size_t>(id)];
    if (content.empty()) return;
    AddedToken token;
    token.content = content;
    token.id = id;
    token.special = is_special;
    if (added_.emplace(content, id).second) spec_.added_tokens.push_back(std::move(token));
  }

  void read_byte_level() {
    spec_.decoder.byte_level = true;
    set_gguf_pretokenizer(header_.string_or(key("pre"), ""), header_.path(), spec_);
    if (spec_.merge_order != TokenizerSpec::MergeOrder::ById) read_merges();
  }

  // "a b" is the merge of a and b. A part may be a token that is also found as a whole.
  void read_merges() {
    std::unordered_map<std::string, TokenId> whole = added_;
    const auto need = [&](const std::string& text) {
      const auto found = whole.find(text);
      if (found == whole.end()) return;
      spec_.vocab.push_back({text, found->second});
      whole.erase(found);
    };
    for (const std::string& merge : header_.strings(key("merges"))) {
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size()) {
        fail(Errc::BadInput, "{}: \"{}\" has \"{}\", which is no pair of tokens", header_.path(),
             key("merges"), merge);
      }
      MergeRule rule{merge.substr(0, space), merge.substr(space + 1)};
      need(rule.left);
      need(rule.right);
      need(rule.left + rule.right);
      spec_.merges.push_back(std::move(rule));
    }
  }

  void read_sentence_pieces() {
    const std::uint64_t count = header_.count(key("scores"));
    if (count != tokens_.size()) wrong_count("scores", count);
    const std::vector<float> scores = header_.numbers(key("scores"));
    for (const VocabEntry& entry : spec_.vocab) {
      const float score = scores[static_cast<std::size_t>(entry.id)];
      if (std::isnan(score))
        fail(Errc::BadInput, "{}: the score of token {} is no number", header_.path(), entry.id);
      spec_.scores.push_back(score);
    }
    spec_.merge_order = TokenizerSpec::MergeOrder::ByScore;
    set_pieces(/*has_prefix=*/true);
  }

  // Of Gemma 4: pieces whose merges are listed.
  void read_pieces_with_merges() {
    read_merges();
    set_pieces(/*has_prefix=*/false);
  }

  // Texts whose spaces are visible, of characters or else bytes.
  void set_pieces(bool has_prefix) {
    spec_.bpe.byte_level = false;
    spec_.bpe.byte_fallback = true;
    spec_.bpe.fuse_unknown = true;
    const auto unknown = header_.integer_or(key("unknown_token_id"), 0, 0, kMaxTokenId);
    if (static_cast<std::size_t>(unknown) < tokens_.size())
      spec_.bpe.unknown = tokens_[static_cast<std::size_t>(unknown)];
    spec_.add_bos = true;

    has_prefix = header_.boolean_or(key("add_space_prefix"), has_prefix);
    if (has_prefix) spec_.normalizer.add(Normalizer::Prepend{std::string(kLowLine)});
    spec_.normalizer.add(
        Normalizer::Replace{{" ", Regex::Kind::Literal, header_.path()}, std::string(kLowLine)});
    spec_.decoder.replacements.emplace_back(kLowLine, " ");
    spec_.decoder.byte_fallback = true;
    spec_.decoder.leading_spaces = has_prefix ? 1 : 0;
  }

  // Tokens that have a role, by the names that chat templates know. Those that end or begin a text
  // are found as a whole whatever their type.
  void read_roles(bool has_defaults) {
    struct Role {
      std::string_view key, name;
      bool is_border;
    };
    constexpr std::array<Role, 7> kRoles{{{"bos_token_id", "bos_token", true},
                                          {"eos_token_id", "eos_token", true},
                                          {"eot_token_id", "eot_token", true},
                                          {"eom_token_id", "eom_token", true},
                                          {"unknown_token_id", "unk_token", false},
                                          {"padding_token_id", "pad_token", false},
                                          {"seperator_token_id", "sep_token", false}}};
    for (const Role& role : kRoles) {
      std::int64_t id = header_.integer_or(key(role.key), -1, -1, UINT32_MAX);
      if (id < 0 && has_defaults && role.name == "bos_token") id = 1;
      if (id < 0 && has_defaults && role.name == "eos_token") id = 2;
      if (id < 0 || id >= static_cast<std::int64_t>(tokens_.size())) continue;
      const auto index = static_cast<std::size_t>(id);
      if (tokens_[index].empty()) continue;
      spec_.special_tokens[std::string(role.name)] = tokens_[index];
      if (role.is_border && types_[index] != kUnused)
        add_added_token(static_cast<TokenId>(id), true);
    }
    spec_.add_bos = header_.boolean_or(key("add_bos_token"), spec_.add_bos);
    spec_.add_eos = header_.boolean_or(key("add_eos_token"), false);
  }

  GgufHeader header_;
  TokenizerSpec spec_;
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> types_;
  std::unordered_map<std::string, TokenId> added_;
};

}  // namespace

TokenizerSpec read_gguf_vocabulary(const std::string& path) {
  return VocabularyReader(path).read();
}

Tokenizer Tokenizer::from_gguf_file(const std::string& path) {
  return Tokenizer(read_gguf_vocabulary(path));
}

}  // namespace moeflux
