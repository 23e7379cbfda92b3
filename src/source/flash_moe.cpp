#include "source/flash_moe.h"

#include <algorithm>

#include "base/error.h"
#include "source/checkpoint_files.h"
#include "source/tensor_index.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxLayoutBytes = 64u << 10;

// "gate.weight" and "gate_proj.weight" are the same part.
std::string canonical_part_name(std::string name) {
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos && !name.substr(0, dot).ends_with("_proj"))
    name.insert(dot, "_proj");
  return name;
}

void check_component(const PackedBlob& blob, const Json& component, const std::string& origin) {
  const JsonFields fields(component, origin);
  const std::string name = fields.string("name");
  const auto part = std::find_if(
      blob.parts.begin(), blob.parts.end(),
      [&](const PackedPart& candidate) { return candidate.name == canonical_part_name(name); });
  if (part == blob.parts.end()) {
    fail(Errc::BadInput, "{}: \"{}\" is not a part of an expert", origin, name.substr(0, 80));
  }
  const std::int64_t offset = fields.integer("offset", 0, INT64_MAX);
  const std::int64_t size = fields.integer("size", 0, INT64_MAX);
  if (static_cast<std::uint64_t>(offset) != part->offset ||
      static_cast<std::uint64_t>(size) != part->bytes) {
    fail(Errc::BadInput,
         "{}: \"{}\" has {} bytes at {}, but the config and {} bits put {} bytes at {}", origin,
         name, size, offset, blob.bits, part->bytes, part->offset);
  }
}

// A layout.json that disagrees means that config and experts belong to different models.
void check_layout(const std::string& path, const ExpertSizes& sizes, const PackedBlob& blob) {
  const Json layout = read_json_file(path, kMaxLayoutBytes);
  const JsonFields fields(layout, path);
  const std::int64_t size = fields.integer("expert_size", 0, INT64_MAX);
  if (static_cast<std::uint64_t>(size) != blob.bytes) {
    fail(Errc::BadInput,
         "{}: \"expert_size\" is {}, but the config and the size of the layer files make it {} "
         "({}-bit)",
         path, size, blob.bytes, blob.bits);
  }
  const std::int64_t n_experts = fields.integer_or("num_experts", sizes.n_experts, 0, INT64_MAX);
  if (n_experts != sizes.n_experts) {
    fail(Errc::BadInput, "{}: \"num_experts\" is {}, but the config says {}", path, n_experts,
         sizes.n_experts);
  }
  const Json* components = fields.find("components");
  if (components == nullptr) return;
  if (!components->is_array()) fail(Errc::BadInput, "{}: \"components\" must be an array", path);
  for (const Json& component : *components) check_component(blob, component, path + ": components");
}

// Only one of the known blob sizes can be right, whatever the directory is called: codes of the
// wrong width would decode to plausible nonsense.
PackedBlob blob_for_file(const File& file, const ExpertSizes& sizes) {
  const auto n = static_cast<std::uint64_t>(sizes.n_experts);
  PackedBlob four = packed_blob(sizes, 4);
  PackedBlob two = packed_blob(sizes, 2);
  if (file.size() == n * four.bytes) return four;
  if (file.size() == n * two.bytes) return two;
  fail(Errc::BadInput,
       "{}: has {} bytes, but {} experts of {} x {} in groups of {} take {} (4-bit) or {} (2-bit); "
       "it is truncated or belongs to another model",
       file.path(), file.size(), sizes.n_experts, sizes.d_ff, sizes.d_model, sizes.group,
       n * four.bytes, n * two.bytes);
}

constexpr std::uint64_t kMaxFlashMoeManifest = 100'000'000;
constexpr std::string_view kManifestName = "/model_weights.json";
constexpr std::string_view kWeightsName = "/model_weights.bin";

// Bounds on what a config may claim, so that sizes computed from them cannot overflow.
constexpr std::int64_t kMaxFlashMoeExperts = 1 << 16;
constexpr std::int64_t kMaxWidth = 1 << 24;
constexpr std::int64_t kMaxLayers = 10'000;

// Where everything lies.
struct FlashMoeFiles {
  std::string path;  // of the model, in messages
  std::string weights, manifest, vocab;
  std::string experts;  // the directory of the layer files
  std::vector<std::string> text_directories;
  int experts_per_token = 0;
};

// The first of the directories that has `name` (which begins with '/'), or nothing.
std::string first_with(const std::vector<std::string>& directories, std::string_view name,
                       bool (*exists)(const std::string&)) {
  for (const std::string& directory : directories) {
    if (exists(directory + std::string(name))) return directory;
  }
  return {};
}

std::vector<std::string> weight_directories(const std::string& parent) {
  return {parent, parent + "/artifacts"};
}

std::vector<std::string> text_directories(const std::string& parent) {
  return {parent, parent + "/mlx", parent + "/artifacts"};
}

std::string directory_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, std::max<std::size_t>(slash, 1));
}

std::vector<std::string> text_directories(const FlashMoePaths& paths) {
  const std::string artifacts = directory_of(paths.manifest);
  std::vector<std::string> directories{artifacts};
  if (!paths.vocab.empty()) directories.push_back(directory_of(paths.vocab));
  directories.push_back(paths.experts);
  directories.push_back(artifacts + "/../mlx");
  return directories;
}

// The directory of the layer files. 4-bit experts are the model's own, 2-bit ones a lossy copy.
std::string find_experts(const std::string& parent) {
  const std::vector<std::string> roots{parent, parent + "/root"};
  for (const std::string name : {"/packed_experts", "/packed_experts_2bit"}) {
    const std::string root = first_with(roots, name, directory_exists);
    if (!root.empty()) return root + name;
  }
  const std::string lz4 = first_with(roots, "/packed_experts_lz4", directory_exists);
  if (!lz4.empty()) {
    fail(Errc::Unsupported,
         "{}/packed_experts_lz4: compressed experts are not supported; keep packed_experts", lz4);
  }
  fail(Errc::NotFound, "{}: neither packed_experts nor packed_experts_2bit is here or in root/",
       parent);
}

// `weight` X.weight of cols columns has scales [.., cols / group]: that tells whether its bits are
// what the manifest says.
void check_bits(const ModelSource& source, const ListedTensor& weight, const std::string& origin) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.bits == 0 || !weight.name.ends_with(kWeight) || weight.shape.empty()) return;
  const std::string stem = weight.name.substr(0, weight.name.size() - kWeight.size());
  const TensorInfo* scales = source.find(stem + ".scales");
  if (scales == nullptr || scales->shape.empty()) return;
  const std::int64_t cols = weight.shape.back() * 32 / weight.bits;
  const std::int64_t groups = scales->shape.back();
  const bool agree = weight.shape.back() * 32 % weight.bits == 0 &&
                     (groups * 32 == cols || groups * 64 == cols || groups * 128 == cols);
  if (!agree) {
    fail(Errc::BadInput,
         "{}: tensor \"{}\": {} bits and shape {} make {} columns, but its scales have shape {}",
         origin, weight.name, weight.bits, shape_text(weight.shape), cols,
         shape_text(scales->shape));
  }
}

void add_resident_tensors(ModelSource& source, const FlashMoeFiles& files,
                          const std::vector<ListedTensor>& tensors) {
  if (!file_exists(files.weights)) {
    fail(Errc::NotFound, "{}: missing, but {} is there", files.weights, kManifestName.substr(1));
  }
  const int file = source.add_file(File(files.weights));
  for (const ListedTensor& t : tensors) {
    source.add_tensor(t.name, {.dtype = t.dtype,
                               .shape = t.shape,
                               .file = file,
                               .offset = t.begin,
                               .bytes = t.end - t.begin});
  }
  for (const ListedTensor& t : tensors) check_bits(source, t, files.manifest);
}

void set_default(Json& config, const char* key, const Json& value) {
  if (!config.contains(key) || config[key].is_null()) config[key] = value;
}

// The manifest keeps the sizes under the names of the released configs but leaves out what the
// original engine took for granted.
Json config_from_manifest(const Json& manifest, const std::string& origin) {
  Json config = manifest;
  if (config.contains("kv_lora_rank") && config.contains("n_routed_experts")) {
    set_default(config, "model_type", "deepseek_v3");
    set_default(config, "num_key_value_heads", config.value("num_attention_heads", Json()));
    set_default(config, "topk_method", "noaux_tc");
    set_default(config, "scoring_func", "sigmoid");
    set_default(config, "norm_topk_prob", true);
    set_default(config, "max_position_embeddings", 163840);
  } else if (config.contains("linear_num_value_heads") && config.contains("num_experts")) {
    set_default(config, "model_type", "qwen3_5_moe_text");
    set_default(config, "max_position_embeddings", 262144);
  } else {
    fail(Errc::BadInput,
         "{}: \"config\" is of no known model, and there is no config.json here or in mlx/",
         origin);
  }
  set_default(config, "hidden_act", "silu");
  set_default(config, "tie_word_embeddings", false);
  set_default(config, "quantization",
              {{"group_size", config.value("default_group_size", Json(64))},
               {"bits", config.value("default_bits", Json(4))},
               {"mode", "affine"}});
  return config;
}

// At most `count` experts for each token, when it is not 0.
void limit_experts(Json& config, int count) {
  if (count <= 0) return;
  const bool nested = config.contains("text_config") && config["text_config"].is_object();
  Json& text = nested ? config["text_config"] : config;
  const auto own = text.find("num_experts_per_tok");
  if (own != text.end() && own->is_number_integer() && *own > count) *own = count;
}

void load_config(ModelSource& source, const FlashMoeFiles& files, const Json& manifest_config) {
  const std::string found = first_with(files.text_directories, "/config.json", file_exists);
  const std::string origin =
      found.empty() ? files.manifest + ": config" : found + std::string("/config.json");
  Json config =
      found.empty() ? config_from_manifest(manifest_config, files.manifest) : read_config(origin);
  limit_experts(config, files.experts_per_token);
  source.set_config(std::move(config), origin);
  source.set_generation_config(read_generation_config(files.text_directories));
  TextAssets text = find_text_assets(files.text_directories);
  if (!files.vocab.empty()) text.vocab_bin = files.vocab;
  source.set_text(std::move(text));
}

std::int64_t expert_group(const ModelSource& source, const Json& manifest_config,
                          const std::string& manifest_path) {
  const JsonFields manifest(manifest_config, manifest_path + ": config");
  if (manifest.has("default_group_size")) return manifest.integer("default_group_size", 1, 4096);
  const auto it = source.config().find("quantization");
  if (it == source.config().end() || !it->is_object()) return 64;
  return JsonFields(*it, source.config_origin() + ": quantization")
      .integer_or("group_size", 64, 1, 4096);
}

ExpertSizes expert_sizes(const ModelSource& source, const JsonFields& config, std::int64_t group) {
  const char* count_key = config.has("n_routed_experts") ? "n_routed_experts" : "num_experts";
  const ExpertSizes sizes{
      .n_experts = static_cast<int>(config.integer(count_key, 1, kMaxFlashMoeExperts)),
      .d_model = config.integer("hidden_size", 1, kMaxWidth),
      .d_ff = config.integer("moe_intermediate_size", 1, kMaxWidth),
      .group = group};
  if (group % 32 != 0 || sizes.d_model % group != 0 || sizes.d_ff % group != 0) {
    fail(Errc::BadInput,
         "{}: packed experts need \"hidden_size\" ({}) and \"moe_intermediate_size\" ({}) to be "
         "multiples of the group of {} columns, itself a multiple of 32",
         source.config_origin(), sizes.d_model, sizes.d_ff, group);
  }
  return sizes;
}

// What stands before "layers.N." in the names of this checkpoint.
std::string layer_prefix(const ModelSource& source) {
  constexpr std::string_view kEmbedding = "embed_tokens.weight";
  for (const auto& [name, info] : source.tensors()) {
    if (name.ends_with(kEmbedding)) return name.substr(0, name.size() - kEmbedding.size());
  }
  return "model.";
}

void add_experts(ModelSource& source, const std::string& directory, std::int64_t group) {
  const JsonFields config(text_config(source.config()), source.config_origin());
  const ExpertSizes sizes = expert_sizes(source, config, group);
  const std::int64_t n_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  const std::int64_t n_dense = config.integer_or("first_k_dense_replace", 0, 0, n_layers);
  const std::int64_t every = config.integer_or("moe_layer_freq", 1, 1, kMaxLayers);
  const std::string prefix = layer_prefix(source);
  std::string layout = directory + "/layout.json";
  if (!file_exists(layout)) layout.clear();

  for (std::int64_t layer = n_dense; layer < n_layers; ++layer) {
    if (layer % every != 0) continue;
    const std::string path = fmt::format("{}/layer_{:02}.bin", directory, layer);
    if (!file_exists(path)) {
      fail(Errc::NotFound, "{}: missing; the config says that layer {} of {} has experts", path,
           layer, n_layers);
    }
    add_packed_layer(source, path, fmt::format("{}layers.{}.mlp.switch_mlp.", prefix, layer), sizes,
                     layout);
  }
}

void need_file(const std::string& path) {
  if (!file_exists(path)) fail(Errc::NotFound, "{}: no such file", path);
}

std::shared_ptr<const ModelSource> open_files(const FlashMoeFiles& files) {
  const FlashMoeManifest manifest = parse_flash_moe_manifest(
      read_text_file(files.manifest, kMaxFlashMoeManifest), files.manifest);
  auto source = std::make_shared<ModelSource>(files.path, ModelSource::Layout::FlashMoe);
  load_config(*source, files, manifest.config);
  add_resident_tensors(*source, files, manifest.tensors);
  add_experts(*source, files.experts, expert_group(*source, manifest.config, files.manifest));
  return source;
}

}  // namespace

PackedBlob packed_blob(const ExpertSizes& sizes, int bits) {
  PackedBlob blob{.bits = bits, .bytes = 0, .parts = {}};
  const auto add = [&](std::string name, DType dtype, std::int64_t rows, std::int64_t cols) {
    const auto bytes = static_cast<std::uint64_t>(rows * cols) * dtype_size(dtype);
    blob.parts.push_back({std::move(name), dtype, {rows, cols}, blob.bytes, bytes});
    blob.bytes += bytes;
  };
  const auto add_projection = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    add(name + ".weight", DType::U32, rows, cols * bits / 32);
    add(name + ".scales", DType::BF16, rows, cols / sizes.group);
    add(name + ".biases", DType::BF16, rows, cols / sizes.group);
  };
  add_projection("gate_proj", sizes.d_ff, sizes.d_model);
  add_projection("up_proj", sizes.d_ff, sizes.d_model);
  add_projection("down_proj", sizes.d_model, sizes.d_ff);
  return blob;
}

void add_packed_layer(ModelSource& source, const std::string& path, const std::string& module,
                      const ExpertSizes& sizes, const std::string& layout) {
  File file(path);
  const PackedBlob blob = blob_for_file(file, sizes);
  if (!layout.empty()) check_layout(layout, sizes, blob);
  const int index = source.add_file(std::move(file));
  for (const PackedPart& part : blob.parts) {
    TensorInfo tensor{.dtype = part.dtype,
                      .shape = part.shape,
                      .file = index,
                      .offset = part.offset,
                      .bytes = part.bytes * static_cast<std::uint64_t>(sizes.n_experts),
                      .slice_stride = blob.bytes};
    tensor.shape.insert(tensor.shape.begin(), sizes.n_experts);
    source.add_tensor(module + part.name, std::move(tensor));
  }
}

bool holds_flash_moe(const std::string& directory) {
  return !first_with(weight_directories(directory), kManifestName, file_exists).empty();
}

std::shared_ptr<const ModelSource> open_flash_moe(const std::string& directory) {
  const std::string weights = first_with(weight_directories(directory), kManifestName, file_exists);
  if (weights.empty()) {
    fail(Errc::NotFound, "{}: {} is missing", directory, kManifestName.substr(1));
  }
  return open_files({.path = directory,
                     .weights = weights + std::string(kWeightsName),
                     .manifest = weights + std::string(kManifestName),
                     .vocab = {},
                     .experts = find_experts(directory),
                     .text_directories = text_directories(directory)});
}

std::shared_ptr<const ModelSource> open_flash_moe(const FlashMoePaths& paths) {
  need_file(paths.manifest);
  need_file(paths.weights);
  if (!paths.vocab.empty()) need_file(paths.vocab);
  const std::string experts =
      paths.experts + (paths.two_bit ? "/packed_experts_2bit" : "/packed_experts");
  if (!directory_exists(experts)) fail(Errc::NotFound, "{}: no such directory", experts);
  return open_files({.path = directory_of(paths.manifest),
                     .weights = paths.weights,
                     .manifest = paths.manifest,
                     .vocab = paths.vocab,
                     .experts = experts,
                     .text_directories = text_directories(paths),
                     .experts_per_token = paths.experts_per_token});
}

}  // namespace moeflux
