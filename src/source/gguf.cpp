#include "source/gguf.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/gguf_header.h"
#include "base/utf8.h"
#include "source/checkpoint_files.h"
#include "source/gguf_architecture.h"
#include "source/gguf_tensors.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileEnding = ".gguf";

// ---- files
// -------------------------------------------------------------------------------------------------

// The files of the model that `path` is a file of, in their order.
std::vector<std::string> parts_of(const std::string& path) {
  const fs::path file(path);
  const std::vector<std::string> names = shard_set(file.filename().string());
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    paths.push_back((file.parent_path() / name).string());
    if (!file_exists(paths.back())) {
      fail(Errc::NotFound, "{}: is one of {} parts, and {} is missing beside it; fetch it, too",
           path, names.size(), name);
    }
  }
  return paths;
}

void check_part(const GgufHeader& part, std::size_t index, std::size_t count) {
  const auto said = [&](const char* key, std::size_t expected) {
    const std::int64_t value =
        part.integer_or(key, static_cast<std::int64_t>(expected), 0, 1 << 16);
    if (value != static_cast<std::int64_t>(expected)) {
      fail(Errc::BadInput,
           "{}: its header says \"{}\" {}, but it is part {} of {} by its name; files were renamed "
           "or belong to different models",
           part.path(), key, value, index + 1, count);
    }
  };
  if (count == 1) {
    if (part.integer_or("split.count", 1, 0, 1 << 16) > 1) {
      fail(Errc::BadInput,
           "{}: is part {} of {} of a model, but its name does not say so; give it back its name "
           "(-00001-of-{:05}.gguf)",
           part.path(), part.integer_or("split.no", 0, 0, 1 << 16) + 1,
           part.integer("split.count", 0, 1 << 16), part.integer("split.count", 0, 1 << 16));
    }
    return;
  }
  said("split.count", count);
  said("split.no", index);
}

// ---- tensors
// -------------------------------------------------------------------------------------------------

// Of NVFP4 a scale belongs to the weights; whoever reads others would not look for it.
void refuse_scales(const ModelSource& source) {
  constexpr std::string_view kScale = ".scale";
  for (const auto& [name, info] : source.tensors()) {
    if (!name.ends_with(kScale) || name.ends_with("router.scale")) continue;
    const TensorInfo* weight = source.find(name.substr(0, name.size() - kScale.size()) + ".weight");
    if (weight != nullptr && weight->blocks == BlockType::NVFP4) continue;
    fail(Errc::Unsupported,
         "{}: tensor \"{}\": a scale of weights that are not NVFP4 is not supported", source.path(),
         name);
  }
}

// Query, key and value rows in one tensor: three tensors of rows that lie one after the other.
void add_fused_attention(ModelSource& source, const std::string& name, const TensorInfo& fused) {
  constexpr std::string_view kFused = "qkv_proj";
  const Json& config = source.config();
  const std::size_t at = name.find(kFused);
  if (!config.contains("head_dim") || !config.contains("num_key_value_heads")) {
    fail(Errc::Unsupported, "{}: tensor \"{}\" is not known for this kind of attention",
         source.path(), name);
  }
  const std::int64_t d_head = config.at("head_dim").get<std::int64_t>();
  const std::int64_t q = config.at("num_attention_heads").get<std::int64_t>() * d_head;
  const std::int64_t kv = config.at("num_key_value_heads").get<std::int64_t>() * d_head;
  const std::int64_t rows = fused.shape.empty() ? 0 : fused.shape.front();
  if (rows != q + 2 * kv && rows != 2 * q + 2 * kv) {  // with an output gate
    fail(Errc::BadInput, "{}: tensor \"{}\" has {} rows, but queries, keys and values have {}",
         source.path(), name, rows, q + 2 * kv);
  }
  std::int64_t row = 0;
  const auto add = [&](const char* part, std::int64_t n_rows) {
    TensorInfo info = fused;
    info.shape.front() = n_rows;
    info.bytes =
        fused.bytes / static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(n_rows);
    info.offset += fused.bytes / static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(row);
    row += n_rows;
    source.add_tensor(std::string(name).replace(at, kFused.size(), part), std::move(info));
  };
  add("q_proj", rows - 2 * kv);
  add("k_proj", kv);
  add("v_proj", kv);
}

// ---- text
// -------------------------------------------------------------------------------------------------

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string template_text(const GgufHeader& header, const std::string& key) {
  std::string text = header.string(key);
  if (find_invalid_utf8(text) != std::string::npos)
    fail(Errc::BadInput, "{}: the value of \"{}\" is not UTF-8", header.path(), key);
  return text;
}

// A text, or a list of named ones where the file has variants.
Json chat_template(const GgufHeader& header) {
  const std::string key(kTemplateKey);
  Json named = Json::array();
  for (const std::string& each : header.keys()) {
    if (!each.starts_with(key + ".")) continue;
    named.push_back(
        {{"name", each.substr(key.size() + 1)}, {"template", template_text(header, each)}});
  }
  if (!header.has(key)) return named.empty() ? Json() : named;
  Json text = template_text(header, key);
  if (named.empty()) return text;
  named.insert(named.begin(), Json{{"name", "default"}, {"template", std::move(text)}});
  return named;
}

// Tokens that end an answer, and recommended sampling, as generation_config.json has them.
Json generation_config(const GgufHeader& header) {
  Json config = Json::object();
  Json ends = Json::array();
  for (const char* token : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", token);
    if (header.has(key)) ends.push_back(header.integer(key, 0, UINT32_MAX));
  }
  if (!ends.empty()) config["eos_token_id"] = std::move(ends);
  constexpr std::array<std::pair<const char*, const char*>, 5> kSampling{{
      {"general.sampling.temp", "temperature"},
      {"general.sampling.top_k", "top_k"},
      {"general.sampling.top_p", "top_p"},
      {"general.sampling.min_p", "min_p"},
      {"general.sampling.penalty_repeat", "repetition_penalty"},
  }};
  for (const auto& [key, ours] : kSampling) {
    if (!header.has(key)) continue;
    if (std::string_view(ours) == "top_k")
      config[ours] = header.integer(key, 0, INT32_MAX);
    else
      config[ours] = std::stod(fmt::format("{}", static_cast<float>(header.number(key))));
  }
  return config;
}

std::shared_ptr<const ModelSource> open_parts(const std::string& path,
                                              const std::vector<std::string>& paths) {
  std::vector<GgufHeader> parts;
  GgufTensors tensors;
  for (const std::string& each : paths) parts.emplace_back(each);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_part(parts[i], i, parts.size());
    for (const GgufTensor& tensor : parts[i].tensors()) {
      if (!tensors.emplace(tensor.name, GgufTensorOf{&tensor, &parts[i]}).second) {
        fail(Errc::BadInput, "{}: the tensor \"{}\" is there twice", parts[i].path(), tensor.name);
      }
    }
  }
  const GgufHeader& first = parts.front();
  const auto n_said = first.integer_or("split.tensors.count",
                                       static_cast<std::int64_t>(tensors.size()), 0, INT32_MAX);
  if (parts.size() > 1 && n_said != static_cast<std::int64_t>(tensors.size())) {
    fail(Errc::BadInput, "{}: its parts have {} tensors together, but its header says {}", path,
         tensors.size(), n_said);
  }

  const GgufArchitecture& architecture = gguf_architecture(first);
  // Before sizes of the metadata are believed: every tensor lies in its file.
  std::vector<std::vector<PlacedTensor>> placed;
  for (std::size_t i = 0; i < parts.size(); ++i)
    placed.push_back(place_gguf_tensors(parts[i], static_cast<int>(i)));
  const GgufFields fields(first, architecture.name, tensors);
  auto source = std::make_shared<ModelSource>(path, ModelSource::Layout::Gguf);
  source->set_config(gguf_config(architecture, fields), first.path());
  source->set_generation_config(generation_config(first));
  TextAssets text;
  text.chat_template = chat_template(first);
  if (first.has("tokenizer.ggml.model")) {
    text.gguf = first.path();
    text.gguf_bytes = first.data_begin();
  }
  source->set_text(std::move(text));

  for (const std::vector<PlacedTensor>& of_part : placed) {
    const GgufHeader& part = parts[static_cast<std::size_t>(source->n_files())];
    const int file = source->add_file(SourceFile(File(part.path())));
    for (const PlacedTensor& each : of_part) {
      const std::string name = our_name(architecture, fields, each.tensor->name);
      if (name.empty()) continue;
      if (!each.info) {
        source->add_unread_tensor(
            name, {.dtype = fmt::format("GGUF {}", each.tensor->type), .file = file});
      } else if (name.find(".qkv_proj.") != std::string::npos) {
        add_fused_attention(*source, name, *each.info);
      } else {
        source->add_tensor(name, *each.info);
      }
    }
  }
  refuse_scales(*source);
  return source;
}

}  // namespace

bool is_gguf_name(std::string_view name) {
  return name.ends_with(kFileEnding);
}

std::vector<std::string> gguf_models(const std::vector<std::string>& names) {
  std::vector<std::string> models;
  for (const std::string& name : names) {
    const auto number = parse_shard_number(name);
    if (!is_gguf_name(name) || name.starts_with("mmproj") || (number && number->index != 1))
      continue;
    models.push_back(name);
  }
  return models;
}

std::string gguf_model_name(std::string_view file_name) {
  if (const auto number = parse_shard_number(file_name); number && is_gguf_name(file_name)) {
    const std::size_t of = file_name.rfind("-of-");
    const std::size_t index = file_name.rfind('-', of - 1);
    if (index != std::string_view::npos && index > 0)
      return std::string(file_name.substr(0, index));
  }
  if (is_gguf_name(file_name)) file_name.remove_suffix(kFileEnding.size());
  return std::string(file_name);
}

std::string find_gguf_by_tag(const std::vector<std::string>& models, std::string_view tag) {
  const auto in_lower_case = [](std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
  };
  const std::string wanted = in_lower_case(tag);
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  std::string best;
  for (const std::string& path : models) {
    const std::string name = in_lower_case(path);
    for (std::size_t at = name.find(wanted); at != std::string::npos;
         at = name.find(wanted, at + 1)) {
      const std::size_t end = at + wanted.size();
      const bool begins = at == 0 || !is_word(name[at - 1]);
      // "Q4_K" before "_M" is another one.
      const bool ends =
          end == name.size() || name[end] == '.' || name[end] == '-' || name[end] == '/';
      if (!begins || !ends) continue;
      if (best.empty() || path.size() < best.size()) best = path;
    }
  }
  return best;
}

bool holds_gguf(const std::string& directory) {
  return !gguf_models(list_files(directory)).empty();
}

std::shared_ptr<const ModelSource> open_gguf_directory(const std::string& directory) {
  const std::vector<std::string> models = gguf_models(list_files(directory));
  if (models.size() != 1) {
    fail(Errc::BadInput, "{}: holds {} models in GGUF files; give the path of one: {}", directory,
         models.size(), fmt::join(models, ", "));
  }
  const std::string path = directory + "/" + models.front();
  return open_parts(directory, parts_of(path));
}

std::shared_ptr<const ModelSource> open_gguf_file(const std::string& path) {
  return open_parts(path, parts_of(path));
}

}  // namespace moeflux
