#include "source/text_assets.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = 4u << 20;
constexpr std::uint64_t kMaxTokenizerConfigBytes = 16u << 20;

std::string find_file(const std::vector<std::string>& directories, const char* name) {
  for (const std::string& directory : directories) {
    std::string path = directory + "/" + name;
    if (file_exists(path)) return path;
  }
  return {};
}

bool is_named_template(const Json& entry) {
  if (!entry.is_object()) return false;
  const auto name = entry.find("name");
  const auto text = entry.find("template");
  return name != entry.end() && name->is_string() && text != entry.end() && text->is_string();
}

// "chat_template" of a JSON file: null when it has none.
Json template_member(const std::string& path, std::uint64_t max_bytes) {
  const Json file = read_json_file(path, max_bytes);
  const JsonFields fields(file, path);
  const Json* found = fields.find("chat_template");
  if (found == nullptr || found->is_string()) return found == nullptr ? Json() : *found;
  const bool named_list =
      found->is_array() && std::all_of(found->begin(), found->end(), is_named_template);
  if (!named_list) {
    fail(Errc::BadInput,
         "{}: \"chat_template\" must be a string or a list of {{\"name\", \"template\"}}", path);
  }
  return *found;
}

Json find_chat_template(const std::vector<std::string>& directories,
                        const std::string& tokenizer_config) {
  if (const std::string path = find_file(directories, "chat_template.jinja"); !path.empty()) {
    std::string text = read_text_file(path, kMaxTemplateBytes);
    if (find_invalid_utf8(text) != std::string::npos) {
      fail(Errc::BadInput, "{}: not valid UTF-8 at byte {}", path, find_invalid_utf8(text));
    }
    return text;
  }
  if (!tokenizer_config.empty()) {
    Json found = template_member(tokenizer_config, kMaxTokenizerConfigBytes);
    if (!found.is_null()) return found;
  }
  if (const std::string path = find_file(directories, "chat_template.json"); !path.empty()) {
    return template_member(path, kMaxTemplateBytes);
  }
  return nullptr;
}

}  // namespace

TextAssets find_text_assets(const std::vector<std::string>& directories) {
  TextAssets text;
  text.tokenizer_json = find_file(directories, "tokenizer.json");
  text.tokenizer_config = find_file(directories, "tokenizer_config.json");
  text.tokenizer_bin = find_file(directories, "tokenizer.bin");
  text.vocab_bin = find_file(directories, "vocab.bin");
  text.tiktoken_model = find_file(directories, "tiktoken.model");
  text.chat_template = find_chat_template(directories, text.tokenizer_config);
  return text;
}

}  // namespace moeflux
