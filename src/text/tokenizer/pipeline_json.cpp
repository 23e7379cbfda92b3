#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/tokenizer_files.h"
#include "text/tokenizer/unicode.h"

namespace moeflux {
namespace {

[[noreturn]] void unsupported(const std::string& origin, std::string_view what) {
  fail(Errc::Unsupported, "{}: {} is not supported", origin, what);
}

const Json& list_of(const JsonFields& fields, std::string_view key) {
  const Json* list = fields.find(key);
  if (list == nullptr || !list->is_array()) {
    fail(Errc::BadInput, "{}: \"{}\" must be a list", fields.origin(), key);
  }
  return *list;
}

// {"Regex": ".."} or {"String": ".."}, or the bare string of old files.
Regex read_pattern(const JsonFields& fields) {
  const Json* pattern = fields.find("pattern");
  if (pattern == nullptr) fail(Errc::BadInput, "{}: \"pattern\" is missing", fields.origin());
  if (pattern->is_string()) {
    return {pattern->get<std::string>(), Regex::Kind::Literal, fields.origin()};
  }
  const JsonFields inner(*pattern, fields.origin() + ": pattern");
  if (inner.has("Regex")) return {inner.string("Regex"), Regex::Kind::Pattern, inner.origin()};
  return {inner.string("String"), Regex::Kind::Literal, inner.origin()};
}

SplitBehavior read_behavior(const std::string& name, const std::string& origin) {
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  unsupported(origin, "the split behavior " + name);
}

void add_normalizer(const Json& json, const std::string& origin, Normalizer& out) {
  const JsonFields fields(json, origin);
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : list_of(fields, "normalizers")) add_normalizer(step, origin, out);
  } else if (type == "NFC") {
    out.add(Normalizer::Form{NormalForm::Nfc});
  } else if (type == "NFD") {
    out.add(Normalizer::Form{NormalForm::Nfd});
  } else if (type == "NFKC") {
    out.add(Normalizer::Form{NormalForm::Nfkc});
  } else if (type == "NFKD") {
    out.add(Normalizer::Form{NormalForm::Nfkd});
  } else if (type == "Lowercase") {
    out.add(Normalizer::Lowercase{});
  } else if (type == "Replace") {
    out.add(Normalizer::Replace{read_pattern(fields), fields.string("content")});
  } else if (type == "Prepend") {
    out.add(Normalizer::Prepend{fields.string("prepend")});
  } else if (type == "Strip") {
    out.add(Normalizer::Strip{fields.boolean_or("strip_left", true),
                              fields.boolean_or("strip_right", true)});
  } else if (type == "ByteLevel") {
    out.add(Normalizer::BytesToVisible{});
  } else {
    unsupported(origin, "the normalizer " + type);
  }
}

void add_byte_level(const JsonFields& fields, Pretokenizer& out) {
  if (fields.boolean_or("add_prefix_space", true)) out.add(Pretokenizer::PrefixSpace{});
  if (fields.boolean_or("use_regex", true)) {
    out.add(Pretokenizer::Split{
        {kGpt2Pattern, Regex::Kind::Pattern, fields.origin()}, SplitBehavior::Isolated, false});
  }
  out.add(Pretokenizer::BytesToVisible{});
}

void add_metaspace(const JsonFields& fields, Pretokenizer& out) {
  using Prepend = Pretokenizer::Metaspace::Prepend;
  const bool prefix_space = fields.boolean_or("add_prefix_space", true);
  const std::string scheme = fields.string_or("prepend_scheme", prefix_space ? "always" : "never");
  Prepend prepend = Prepend::Always;
  if (scheme == "never") {
    prepend = Prepend::Never;
  } else if (scheme == "first") {
    prepend = Prepend::First;
  } else if (scheme != "always") {
    unsupported(fields.origin(), "prepend_scheme " + scheme);
  }
  const std::string replacement = fields.string("replacement");
  if (replacement.empty()) fail(Errc::BadInput, "{}: \"replacement\" is empty", fields.origin());
  out.add(Pretokenizer::Metaspace{replacement, prepend, fields.boolean_or("split", true)});
}

void add_pretokenizer(const Json& json, const std::string& origin, Pretokenizer& out) {
  const JsonFields fields(json, origin);
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : list_of(fields, "pretokenizers")) add_pretokenizer(step, origin, out);
  } else if (type == "ByteLevel") {
    add_byte_level(fields, out);
  } else if (type == "Split") {
    out.add(Pretokenizer::Split{read_pattern(fields),
                                read_behavior(fields.string("behavior"), origin),
                                fields.boolean_or("invert", false)});
  } else if (type == "Digits") {
    out.add(Pretokenizer::CharacterSplit{is_numeric, fields.boolean_or("individual_digits", false)
                                                         ? SplitBehavior::Isolated
                                                         : SplitBehavior::Contiguous});
  } else if (type == "Punctuation") {
    out.add(Pretokenizer::CharacterSplit{
        is_punctuation, read_behavior(fields.string_or("behavior", "Isolated"), origin)});
  } else if (type == "WhitespaceSplit") {
    out.add(Pretokenizer::CharacterSplit{is_white_space, SplitBehavior::Removed});
  } else if (type == "Whitespace") {
    out.add(Pretokenizer::CharacterSplit{is_white_space, SplitBehavior::Removed});
    out.add(Pretokenizer::CharacterSplit{is_word, SplitBehavior::Contiguous});
  } else if (type == "Metaspace") {
    add_metaspace(fields, out);
  } else {
    unsupported(origin, "the pre-tokenizer " + type);
  }
}

// The decoders of byte-level vocabularies end in bytes; those of SentencePiece-like ones in text,
// perhaps without the space that was put before it.
void add_decoder(const Json& json, const std::string& origin, TokenDecoder& out, bool& fused) {
  const JsonFields fields(json, origin);
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : list_of(fields, "decoders")) add_decoder(step, origin, out, fused);
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "ByteLevel" && !fused) {
    out.byte_level = fused = true;
  } else if (type == "ByteFallback" && !fused) {
    out.byte_fallback = true;
  } else if (type == "Replace" && !fused && !out.byte_fallback) {
    const Json* pattern = fields.find("pattern");
    const std::string what =
        JsonFields(pattern == nullptr ? Json() : *pattern, origin).string("String");
    if (what.empty()) fail(Errc::BadInput, "{}: Replace of an empty text", origin);
    out.replacements.emplace_back(what, fields.string("content"));
  } else if (type == "Strip" && fused && fields.string("content") == " " &&
             fields.integer_or("stop", 0, 0, 1 << 20) == 0) {
    out.leading_spaces = static_cast<std::size_t>(fields.integer("start", 0, 1 << 20));
  } else if (type == "Metaspace" && !fused) {
    out.replacements.emplace_back(fields.string("replacement"), " ");
    const bool prefix_space = fields.boolean_or("add_prefix_space", true);
    if (fields.string_or("prepend_scheme", prefix_space ? "always" : "never") != "never") {
      out.leading_spaces = 1;
    }
  } else {
    unsupported(origin, "the decoder " + type + " at this place");
  }
}

void append_ids(const JsonFields& special_tokens, const std::string& name,
                std::vector<TokenId>& out) {
  const Json* token = special_tokens.find(name);
  const std::string origin = special_tokens.origin() + ": " + name;
  if (token == nullptr) fail(Errc::BadInput, "{}: is used but not described", origin);
  for (const Json& id : list_of(JsonFields(*token, origin), "ids")) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > kMaxTokenId) {
      fail(Errc::BadInput, "{}: \"ids\" has {}, which is no token id", origin, dump_json(id));
    }
    out.push_back(id.get<TokenId>());
  }
}

void read_template(const JsonFields& fields, std::vector<TokenId>& prefix,
                   std::vector<TokenId>& suffix) {
  const Json* tokens = fields.find("special_tokens");
  const Json none = Json::object();
  const JsonFields special_tokens(tokens == nullptr ? none : *tokens,
                                  fields.origin() + ": special_tokens");
  bool after_text = false;
  std::vector<TokenId> before, after;
  for (const Json& piece : list_of(fields, "single")) {
    const JsonFields part(piece, fields.origin() + ": single");
    if (part.has("Sequence")) {
      if (std::exchange(after_text, true)) unsupported(part.origin(), "a text that is repeated");
      continue;
    }
    const Json* special = part.find("SpecialToken");
    if (special == nullptr) fail(Errc::BadInput, "{}: neither text nor token", part.origin());
    append_ids(special_tokens, JsonFields(*special, part.origin()).string("id"),
               after_text ? after : before);
  }
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
}

}  // namespace

Normalizer read_normalizer(const Json& json, const std::string& origin) {
  Normalizer out;
  if (!json.is_null()) add_normalizer(json, origin, out);
  return out;
}

Pretokenizer read_pretokenizer(const Json& json, const std::string& origin) {
  Pretokenizer out;
  if (!json.is_null()) add_pretokenizer(json, origin, out);
  return out;
}

TokenDecoder read_decoder(const Json& json, const std::string& origin) {
  TokenDecoder out;
  bool fused = false;
  if (!json.is_null()) add_decoder(json, origin, out, fused);
  return out;
}

void read_post_processor(const Json& json, const std::string& origin, std::vector<TokenId>& prefix,
                         std::vector<TokenId>& suffix) {
  if (json.is_null()) return;
  const JsonFields fields(json, origin);
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : list_of(fields, "processors")) {
      read_post_processor(step, origin, prefix, suffix);
    }
  } else if (type == "TemplateProcessing") {
    read_template(fields, prefix, suffix);
  } else if (type != "ByteLevel") {  // which only adjusts offsets
    unsupported(origin, "the post-processor " + type);
  }
}

}  // namespace moeflux
