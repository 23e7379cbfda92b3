#include "convert/synth/synth_text.h"

#include <array>

#include "base/error.h"
#include "source/checkpoint_files.h"

namespace moeflux {
namespace {

struct ControlToken {
  int id = 0;
  std::string text{};
  bool special = true;  // not shown in answers
};

struct Vocabulary {
  int first = 0;  // of the tokens that merges make; control tokens may come before and after
  int end = 0;
  std::vector<ControlToken> control;
  std::vector<int> ends;  // ids that end an answer
  std::string bos, eos, pad;
  std::string chat_template;
};

constexpr const char* kChatMl =
    R"({%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\n\n</think>\n\n' -}}
{%- endif -%}
{%- endif -%}
)";

constexpr const char* kDeepseekTemplate =
    R"({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{{- '<|User|>' + message.content -}}
{%- elif message.role == 'assistant' -%}
{{- '<|Assistant|>' + message.content + eos_token -}}
{%- else -%}
{{- message.content -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|Assistant|>' -}}{%- endif -%}
)";

// DeepSeek writes its control tokens with a full-width bar and a low block for the space.
std::string deepseek_form(std::string text) {
  const auto replace = [&](std::string_view what, std::string_view by) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size())) {
      text.replace(at, what.size(), by);
    }
  };
  replace("<|", "<\xEF\xBD\x9C");
  replace("|>", "\xEF\xBD\x9C>");
  return text;
}

std::string deepseek_token(std::string name) {
  for (std::size_t at = name.find(' '); at != std::string::npos; at = name.find(' ')) {
    name.replace(at, 1, "\xE2\x96\x81");
  }
  return deepseek_form("<|" + name + "|>");
}

// The 26 control tokens of the released tokenizers follow 248044 others (of 248320 rows) or 151643
// (of 151936). Another vocabulary has them near its end.
Vocabulary qwen_vocabulary(int n_vocab) {
  const int rows_from_control = n_vocab == 151936 ? 151936 - 151643 : 248320 - 248044;
  const std::array<const char*, 26> names{"<|endoftext|>",
                                          "<|im_start|>",
                                          "<|im_end|>",
                                          "<|object_ref_start|>",
                                          "<|object_ref_end|>",
                                          "<|box_start|>",
                                          "<|box_end|>",
                                          "<|quad_start|>",
                                          "<|quad_end|>",
                                          "<|vision_start|>",
                                          "<|vision_end|>",
                                          "<|vision_pad|>",
                                          "<|image_pad|>",
                                          "<|video_pad|>",
                                          "<tool_call>",
                                          "</tool_call>",
                                          "<|fim_prefix|>",
                                          "<|fim_middle|>",
                                          "<|fim_suffix|>",
                                          "<|fim_pad|>",
                                          "<|repo_name|>",
                                          "<|file_sep|>",
                                          "<tool_response>",
                                          "</tool_response>",
                                          "<think>",
                                          "</think>"};
  Vocabulary v{.first = 0,
               .end = n_vocab - rows_from_control,
               .control = {},
               .ends = {},
               .bos = {},
               .eos = "<|im_end|>",
               .pad = "<|endoftext|>",
               .chat_template = kChatMl};
  for (const char* name : names) {
    v.control.push_back({v.end + static_cast<int>(v.control.size()), name, name[1] == '|'});
  }
  v.ends = {v.end + 2, v.end};
  return v;
}

// Three control tokens come first, those of chats last.
Vocabulary deepseek_vocabulary(int n_vocab) {
  Vocabulary v{.first = 3,
               .end = n_vocab - 17,
               .control = {},
               .ends = {1},
               .bos = deepseek_token("begin of sentence"),
               .eos = deepseek_token("end of sentence"),
               .pad = deepseek_token(" pad "),
               .chat_template = deepseek_form(kDeepseekTemplate)};
  v.control = {{0, v.bos}, {1, v.eos}, {2, v.pad}};
  const std::array<std::string, 17> names{"<think>",
                                          "</think>",
                                          deepseek_token("fim hole"),
                                          deepseek_token("fim begin"),
                                          deepseek_token("fim end"),
                                          deepseek_token("User"),
                                          deepseek_token("Assistant"),
                                          "<|EOT|>",
                                          deepseek_token("tool calls begin"),
                                          deepseek_token("tool calls end"),
                                          deepseek_token("tool call begin"),
                                          deepseek_token("tool call end"),
                                          deepseek_token("tool outputs begin"),
                                          deepseek_token("tool outputs end"),
                                          deepseek_token("tool output begin"),
                                          deepseek_token("tool output end"),
                                          deepseek_token("tool sep")};
  for (std::size_t i = 0; i < names.size(); ++i) {
    v.control.push_back(
        {v.end + static_cast<int>(i), names[i], names[i].find("think") == std::string::npos});
  }
  return v;
}

Vocabulary vocabulary_of(const Json& config) {
  const Json& text = text_config(config);
  const int n_vocab = text.at("vocab_size").get<int>();
  const Vocabulary v =
      text.contains("kv_lora_rank") ? deepseek_vocabulary(n_vocab) : qwen_vocabulary(n_vocab);
  MOEFLUX_ASSERT(v.end - v.first >= 256);
  return v;
}

// The visible form of a byte in a byte-level vocabulary.
std::string visible(int byte) {
  const auto stands_for_itself = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int point = byte;
  if (!stands_for_itself(byte)) {
    point = 256;
    for (int b = 0; b < byte; ++b) point += stands_for_itself(b) ? 0 : 1;
  }
  if (point < 128) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
}

// Writes "vocab" and "merges" as text: as JSON values, a quarter of a million entries would be slow
// and large.
class VocabularyText {
 public:
  explicit VocabularyText(const Vocabulary& v) : next_(v.first), end_(v.end) {
    for (int byte = 0; byte < 256; ++byte) add(visible(byte));
    merge_letters();
  }

  std::string vocab() const { return "{" + vocab_ + "}"; }
  std::string merges() const { return "[" + merges_ + "]"; }

 private:
  void add(const std::string& token) {
    if (!vocab_.empty()) vocab_ += ",\n";
    vocab_ += fmt::format(
        "{}: {}", token == "\"" || token == "\\" ? "\"\\" + token + "\"" : "\"" + token + "\"",
        next_++);
  }
  void merge(std::string_view a, std::string_view b) {
    if (next_ >= end_) return;
    if (!merges_.empty()) merges_ += ",\n";
    merges_ += fmt::format("\"{} {}\"", a, b);
    add(fmt::format("{}{}", a, b));
  }
  // Calls body for every string of n letters, until the vocabulary is full.
  template <class Body>
  void each(int n, const Body& body, std::string prefix = {}) {
    if (next_ >= end_) return;
    if (n == 0) return body(prefix);
    for (char c = 'a'; c <= 'z'; ++c) each(n - 1, body, prefix + c);
  }
  void merge_letters() {
    const std::string space = visible(' ');
    each(2, [&](const std::string& s) { merge(s.substr(0, 1), s.substr(1)); });
    each(1, [&](const std::string& s) { merge(space, s); });
    each(2, [&](const std::string& s) { merge(space, s); });
    each(3, [&](const std::string& s) { merge(s.substr(0, 2), s.substr(2)); });
    each(3, [&](const std::string& s) { merge(space, s); });
    each(4, [&](const std::string& s) { merge(s.substr(0, 2), s.substr(2)); });
  }

  int next_, end_;
  std::string vocab_, merges_;
};

Json added_token(const ControlToken& token) {
  return {{"content", token.text}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},       {"normalized", false},  {"special", token.special}};
}

std::string tokenizer_json(const Vocabulary& v) {
  Json added = Json::array();
  for (const ControlToken& token : v.control) {
    Json entry = {{"id", token.id}};
    entry.update(added_token(token));
    added.push_back(std::move(entry));
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const VocabularyText text(v);
  return fmt::format(
      "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n\"added_tokens\": {},\n"
      "\"normalizer\": null,\n\"pre_tokenizer\": {},\n\"post_processor\": null,\n\"decoder\": {},\n"
      "\"model\": {{\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n\"vocab\": {},\n"
      "\"merges\": {}}}}}\n",
      dump_json(added, 1), dump_json(byte_level), dump_json(byte_level), text.vocab(),
      text.merges());
}

std::string tokenizer_config(const Vocabulary& v) {
  Json decoder = Json::object();
  for (const ControlToken& token : v.control) {
    decoder[std::to_string(token.id)] = added_token(token);
  }
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"bos_token", v.bos.empty() ? Json() : Json(v.bos)},
                       {"eos_token", v.eos},
                       {"pad_token", v.pad},
                       {"add_bos_token", false},
                       {"clean_up_tokenization_spaces", false},
                       {"added_tokens_decoder", std::move(decoder)}};
  return dump_json(config, 1) + "\n";
}

}  // namespace

void add_token_ids(Json& config) {
  const Vocabulary v = vocabulary_of(config);
  if (!v.bos.empty()) config["bos_token_id"] = 0;
  config["eos_token_id"] = v.ends;
}

std::vector<TextFile> synth_text_files(const Json& config) {
  const Vocabulary v = vocabulary_of(config);
  const Json generation = {{"eos_token_id", v.ends},
                           {"do_sample", true},
                           {"temperature", 1.0},
                           {"top_p", 0.95},
                           {"top_k", 20}};
  return {{"tokenizer.json", tokenizer_json(v)},
          {"tokenizer_config.json", tokenizer_config(v)},
          {"chat_template.jinja", v.chat_template},
          {"generation_config.json", dump_json(generation, 1) + "\n"}};
}

}  // namespace moeflux
