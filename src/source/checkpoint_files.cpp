#include "source/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
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
  if (!name.ends_with(kSuffix)) return std::nullopt;
  std::string_view rest = name.substr(0, name.size() - kSuffix.size());
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
constexpr int kDefaultFp8Block = 128;
constexpr int kMaxFp8Block = 1 << 16;

// The blocks that describe quantization: Hugging Face writes "quantization_config", MLX writes the
// same block under both names, and a multimodal wrapper may have them in its text config.
std::vector<std::pair<std::string, const Json*>> quantization_blocks(const Json& config) {
  std::vector<std::pair<std::string, const Json*>> blocks;
  const auto collect = [&](const Json& in, const std::string& where) {
    for (const char* key : {"quantization", "quantization_config"}) {
      const auto it = in.find(key);
      if (it != in.end() && !it->is_null()) blocks.emplace_back(where + key, &*it);
    }
  };
  collect(config, "");
  const Json& text = text_config(config);
  if (&text != &config) collect(text, "text_config.");
  return blocks;
}

// [n, n] with n > 0, or 0.
int square_block(const Json& value) {
  if (!value.is_array() || value.size() != 2) return 0;
  if (!value[0].is_number_integer() || value[0] != value[1]) return 0;
  const bool in_range = value[0] > 0 && value[0] <= kMaxFp8Block;
  return in_range ? value[0].get<int>() : 0;
}

void check_fp8(const JsonFields& block) {
  const std::string format = block.string_or("fmt", "e4m3");
  if (format != "e4m3") {
    fail(Errc::Unsupported, "{}: FP8 of the format \"{}\" is not supported, only e4m3 is",
         block.origin(), format);
  }
  const Json* size = block.find("weight_block_size");
  if (size == nullptr) {
    fail(Errc::Unsupported,
         "{}: FP8 with one scale per tensor is not supported; \"weight_block_size\" is missing",
         block.origin());
  }
  if (square_block(*size) == 0) {
    fail(Errc::Unsupported,
         "{}: \"weight_block_size\" is {}, but must be two equal positive numbers", block.origin(),
         dump_json(*size).substr(0, 80));
  }
}

void check_mode(const JsonFields& block) {
  const std::string mode = block.string_or("mode", "affine");
  if (mode != "affine") {
    fail(Errc::Unsupported, "{}: quantization mode \"{}\" is not supported, only affine is",
         block.origin(), mode);
  }
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
    for (int i = 1; i <= split->number.count; ++i) {
      const std::string want =
          fmt::format("{}{:0{}}{}", split->stem, i, split->index_width, split->tail);
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

void check_quantization(const Json& config, const std::string& origin) {
  for (const auto& [key, value] : quantization_blocks(config)) {
    const JsonFields block(*value, fmt::format("{}: {}", origin, key));
    const std::string method = block.string_or("quant_method", "");
    if (method == "fp8") {
      check_fp8(block);
      continue;
    }
    if (!method.empty()) {
      fail(Errc::Unsupported,
           "{}: quantization method \"{}\" is not supported; take the BF16, FP8 or MLX release",
           block.origin(), method);
    }
    check_mode(block);
    for (const auto& [module, entry] : value->items()) {
      if (!entry.is_object()) continue;
      check_mode({entry, fmt::format("{}.{}", block.origin(), module)});
    }
  }
}

int fp8_block_edge(const Json& config) {
  for (const auto& [key, value] : quantization_blocks(config)) {
    if (!value->is_object()) continue;
    const auto it = value->find("weight_block_size");
    if (it == value->end()) continue;
    if (const int edge = square_block(*it); edge > 0) return edge;
  }
  return kDefaultFp8Block;
}

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
