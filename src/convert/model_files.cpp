#include "convert/model_files.h"

#include <filesystem>

#include "base/file.h"
#include "base/gguf_header.h"
#include "source/checkpoint_files.h"
#include "source/quant_settings.h"

namespace moeflux {
namespace {

// Beside the tokenizer; not read by this program, but by others that use the same directory.
constexpr const char* kCompanions[] = {"special_tokens_map.json", "added_tokens.json", "LICENSE"};

void add_copy(std::vector<TextFile>& files, const std::string& path) {
  if (path.empty() || !file_exists(path)) return;
  files.push_back({std::filesystem::path(path).filename().string(), read_text_file(path)});
}

// A GGUF file without tensors, of the keys that make the tokenizer. The template has its own file.
std::string vocabulary_of(const std::string& path) {
  const GgufHeader header(path);
  std::string values;
  std::uint64_t n_values = 0;
  for (const std::string& key : header.keys()) {
    const bool is_wanted = key.starts_with("tokenizer.") || key == "general.architecture";
    if (!is_wanted || key.starts_with("tokenizer.chat_template")) continue;
    values += header.raw(key);
    ++n_values;
  }
  std::string file = "GGUF";
  const auto add = [&](std::uint64_t number, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) file += static_cast<char>(number >> (8 * i) & 0xFF);
  };
  add(3, 4);
  add(0, 8);
  add(n_values, 8);
  return file + values;
}

}  // namespace

Json container_config(const ModelSource& source, bool has_fp8) {
  const Json& top = source.config();
  Json config = text_config(top);
  if (&text_config(top) != &top) {
    // What the wrapper says of the whole counts where the text model is silent; objects describe
    // its other parts.
    for (const auto& [key, value] : top.items()) {
      if (!value.is_object() && !config.contains(key)) config[key] = value;
    }
    if (top.contains("model_type")) config["model_type"] = top["model_type"];
  }
  config.erase("quantization");
  config.erase("quantization_config");
  // Dense tensors are copied as they are, so what their format needs beside shapes stays.
  const Json* block = quantization_block(top);
  const std::string method = block == nullptr ? "" : block->value("quant_method", "");
  if (!method.empty() && method != "fp8") {
    config["quantization_config"] = *block;
  } else if (has_fp8) {
    const int edge = fp8_block_edge(top);
    config["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {edge, edge}}};
  }
  return config;
}

std::vector<TextFile> container_text_files(const ModelSource& source, bool has_fp8) {
  std::vector<TextFile> files;
  files.push_back({"config.json", dump_json(container_config(source, has_fp8), 1) + "\n"});
  if (!source.generation_config().empty()) {
    files.push_back({"generation_config.json", dump_json(source.generation_config(), 1) + "\n"});
  }
  const TextAssets& text = source.text();
  for (const std::string* path : {&text.tokenizer_json, &text.tokenizer_config, &text.tokenizer_bin,
                                  &text.vocab_bin, &text.tiktoken_model}) {
    add_copy(files, *path);
  }
  if (!text.gguf.empty()) files.push_back({"tokenizer.gguf", vocabulary_of(text.gguf)});
  if (!text.tokenizer_json.empty()) {
    const std::filesystem::path beside = std::filesystem::path(text.tokenizer_json).parent_path();
    for (const char* name : kCompanions) add_copy(files, (beside / name).string());
  }
  if (text.chat_template.is_string()) {
    files.push_back({"chat_template.jinja", text.chat_template.get<std::string>()});
  } else if (!text.chat_template.is_null()) {
    files.push_back(
        {"chat_template.json", dump_json(Json{{"chat_template", text.chat_template}}, 1) + "\n"});
  }
  return files;
}

}  // namespace moeflux
