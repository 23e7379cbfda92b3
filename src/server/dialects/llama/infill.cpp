#include <array>

#include "server/dialects/llama/llama.h"

namespace moeflux {
namespace {

// What families call the control tokens of this: before the prefix, before the suffix, before the
// middle. All write them in this order.
struct Markers {
  const char *prefix, *suffix, *middle;
  const char *repository, *file;  // "": none
};
constexpr std::array<Markers, 6> kMarkers{{
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "", ""},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     "", ""},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", ""},
    {"<PRE>", "<SUF>", "<MID>", "", ""},
}};

std::optional<TokenId> control_token(const Tokenizer& tokenizer, const char* text) {
  const auto token = tokenizer.find_token(text);
  return token && tokenizer.is_added(*token) ? token : std::nullopt;
}

class Builder {
 public:
  explicit Builder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void add(TokenId token) { tokens_.push_back(token); }
  void add(const std::string& text) {
    const std::vector<TokenId> more = tokenizer_.encode_data(text);
    tokens_.insert(tokens_.end(), more.begin(), more.end());
  }
  std::vector<TokenId> take() { return std::move(tokens_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> tokens_;
};

}  // namespace

std::optional<InfillPrompt> infill_prompt(const Tokenizer& tokenizer, const InfillParts& parts) {
  for (const Markers& markers : kMarkers) {
    const auto prefix = control_token(tokenizer, markers.prefix);
    const auto suffix = control_token(tokenizer, markers.suffix);
    const auto middle = control_token(tokenizer, markers.middle);
    if (!prefix || !suffix || !middle) continue;
    const auto repository = control_token(tokenizer, markers.repository);
    const auto file = control_token(tokenizer, markers.file);
    InfillPrompt prompt;
    Builder builder(tokenizer);
    if (!parts.files.empty() && repository) {
      builder.add(*repository);
      builder.add("repository\n");
    }
    for (const InfillFile& each : parts.files) {
      if (file) builder.add(*file);
      builder.add(each.name + "\n" + each.text + (file ? "" : "\n"));
    }
    if (!parts.files.empty() && file) {
      builder.add(*file);
      builder.add("this file\n");
    }
    builder.add(*prefix);
    builder.add(parts.prefix);
    builder.add(*suffix);
    builder.add(parts.suffix);
    builder.add(*middle);
    builder.add(parts.begun);
    prompt.tokens = builder.take();
    for (const auto& each : {repository, file, prefix, suffix, middle}) {
      if (each) prompt.ends.push_back(*each);
    }
    return prompt;
  }
  return std::nullopt;
}

}  // namespace moeflux
