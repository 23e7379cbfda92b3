#include "source/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "source/quant_settings.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors", kGgufSuffix = ".gguf";
constexpr int kMaxShards = 100'000;

// Takes the digits at the end of `text` off it.
std::optional<int> take_number(std::string_view& text) {
  const std::size_t last = text.find_last_not_of("0123456789");
  const std::string_view digits = text.substr(last == text.npos ? 0 : last + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || value > kMaxShards) return std::nullopt;
  text.remove_suffix(digits.size());
  return value;
}

struct NumberedName {
  std::string_view stem;  // "model-"
  std::size_t index_width = 0;
  std::string_view tail;  // "-of-00005.safetensors"
  ShardNumber number;
};

std::optional<NumberedName> split_numbered(std::string_view name) {
  const std::string_view suffix = name.ends_with(kSuffix) ? kSuffix : kGgufSuffix;
  if (!name.ends_with(suffix)) return std::nullopt;
  std::string_view rest = name.substr(0, name.size() - suffix.size());
  const auto count = take_number(rest);
  constexpr std::string_view kOf = "-of-";
  if (!count || !rest.ends_with(kOf)) return std::nullopt;
  rest.remove_suffix(kOf.size());
  const std::size_t tail = rest.size();
  const auto index = take_number(rest);
  if (!index || *index < 1 || *index > *count) return std::nullopt;
  return NumberedName{rest, tail - rest.size(), name.substr(tail), {*index, *count}};
}

constexpr std::uint64_t kMaxConfigBytes = 4u << 20;

// ModelOpt says how weights are quantized in a file of its own; newer releases in the config, too.
void add_modelopt_settings(Json& config, const std::string& config_path) {
  const std::string path = fs::path(config_path).replace_filename("hf_quant_config.json").string();
  if (config.contains("quantization_config") || !file_exists(path)) return;
  const Json file = read_json_file(path, kMaxConfigBytes);
  const auto block = file.is_object() ? file.find("quantization") : file.end();
  if (!file.is_object() || block == file.end() || !block->is_object()) {
    fail(Errc::BadInput, "{}: \"quantization\" must be a JSON object", path);
  }
  Json settings = *block;
  settings["quant_method"] = "modelopt";
  config["quantization_config"] = std::move(settings);
}

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

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

std::optional<ShardNumber> parse_shard_number(std::string_view name) {
  const auto split = split_numbered(name);
  if (!split) return std::nullopt;
  return split->number;
}

std::vector<std::string> shard_set(const std::string& name) {
  const auto split = split_numbered(name);
  if (!split) return {name};
  std::vector<std::string> names;
  for (int i = 1; i <= split->number.count; ++i)
    names.push_back(fmt::format("{}{:0{}}{}", split->stem, i, split->index_width, split->tail));
  return names;
}

std::vector<std::string> list_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
  }
  if (error) fail(Errc::Io, "{}: cannot list the directory: {}", directory, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> list_model_shards(const std::string& directory) {
  std::vector<std::string> names = list_files(directory);
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with("model") || !name.ends_with(kSuffix);
  });
  return names;
}

void check_shards_complete(const std::string& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto split = split_numbered(name);
    if (!split) continue;
    for (const std::string& want : shard_set(name)) {
      if (!std::binary_search(names.begin(), names.end(), want)) {
        fail(Errc::NotFound, "{}: the shard {} is missing; the download is incomplete", directory,
             want);
      }
    }
    return;  // the names agree on the set, or the tensors of the rest collide or are missing
  }
}

Json read_config(const std::string& path) {
  if (!file_exists(path)) {
    fail(Errc::NotFound, "{}: missing; it says what the tensors mean, take it from the same place",
         path);
  }
  Json config = read_json_file(path, kMaxConfigBytes);
  if (!config.is_object()) fail(Errc::BadInput, "{}: must be a JSON object", path);
  add_modelopt_settings(config, path);
  check_quantization(config, path);
  return config;
}

Json read_generation_config(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    const std::string path = directory + "/generation_config.json";
    if (!file_exists(path)) continue;
    Json config = read_json_file(path, kMaxConfigBytes);
    if (!config.is_object()) fail(Errc::BadInput, "{}: must be a JSON object", path);
    return config;
  }
  return Json::object();
}

const Json& text_config(const Json& config) {
  const auto it = config.find("text_config");
  return it != config.end() && it->is_object() ? *it : config;
}

TextAssets find_text_assets(const std::vector<std::string>& directories) {
  TextAssets text;
  text.tokenizer_json = find_file(directories, "tokenizer.json");
  text.tokenizer_config = find_file(directories, "tokenizer_config.json");
  text.tokenizer_bin = find_file(directories, "tokenizer.bin");
  text.vocab_bin = find_file(directories, "vocab.bin");
  text.tiktoken_model = find_file(directories, "tiktoken.model");
  text.gguf = find_file(directories, "tokenizer.gguf");
  if (!text.gguf.empty()) text.gguf_bytes = File(text.gguf).size();
  text.chat_template = find_chat_template(directories, text.tokenizer_config);
  return text;
}

}  // namespace moeflux
