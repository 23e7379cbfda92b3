#include "source/quant_settings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "source/checkpoint_files.h"

namespace moeflux {
namespace {

constexpr int kDefaultFp8Block = 128;
constexpr int kMaxFp8Block = 1 << 16;
constexpr std::int64_t kMaxGroup = std::int64_t{1} << 32;

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

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

// Throws unless the key is absent or, in lower case, one of the names.
void need_one_of(const JsonFields& block, std::string_view key, Names names) {
  const std::string name = block.string_or(key, "");
  if (name.empty() || is_one_of(lower(name), names)) return;
  fail(Errc::Unsupported, "{}: \"{}\" is \"{}\", which is not supported, only {} is",
       block.origin(), key, name, fmt::join(names, ", "));
}

void need_bits(const JsonFields& block, std::string_view key, std::initializer_list<int> allowed) {
  if (!block.has(key)) return;
  const std::int64_t bits = block.integer(key, 0, 64);
  if (std::find(allowed.begin(), allowed.end(), bits) == allowed.end()) {
    fail(Errc::Unsupported, "{}: \"{}\" is {}, which is not supported, only {} is", block.origin(),
         key, bits, fmt::join(allowed, ", "));
  }
}

void refuse_if(const JsonFields& block, std::string_view key, bool value, std::string_view why) {
  if (!block.has(key) || block.boolean_or(key, !value) != value) return;
  fail(Errc::Unsupported, "{}: \"{}\" is {}: {}", block.origin(), key, value, why);
}

// [n, n] with n > 0, or 0.
int square_block(const Json& value) {
  if (!value.is_array() || value.size() != 2) return 0;
  if (!value[0].is_number_integer() || value[0] != value[1]) return 0;
  const bool in_range = value[0] > 0 && value[0] <= kMaxFp8Block;
  return in_range ? value[0].get<int>() : 0;
}

void check_block(const JsonFields& block, std::string_view key) {
  const Json* size = block.find(key);
  if (size == nullptr || size->is_null() || square_block(*size) > 0) return;
  fail(Errc::Unsupported, "{}: \"{}\" is {}, but must be two equal positive numbers",
       block.origin(), key, dump_json(*size).substr(0, 80));
}

void check_fp8(const JsonFields& block) {
  need_one_of(block, "fmt", {"e4m3", "float8_e4m3fn", "e4m3fn"});
  check_block(block, "weight_block_size");
}

void check_gptq(const JsonFields& block) {
  need_bits(block, "bits", {2, 4, 8});
  need_one_of(block, "checkpoint_format", {"gptq", "gptq_v2"});
  refuse_if(block, "desc_act", true,
            "GPTQ with activation order is not supported; take a release without it");
  refuse_if(block, "is_marlin_format", true, "take the release in GPTQ's own format");
}

void check_awq(const JsonFields& block) {
  need_one_of(block, "version", {"gemm"});
  need_bits(block, "bits", {4});
  need_bits(block, "w_bit", {4});
  refuse_if(block, "zero_point", false, "AWQ without zero points is not supported");
}

// One of the config_groups of compressed-tensors: how weights of some modules are stored.
void check_weights(const JsonFields& weights) {
  need_one_of(weights, "type", {"int", "float"});
  const bool is_float = weights.string_or("type", "int") == "float";
  need_bits(weights, "num_bits", {4, 8});
  need_one_of(weights, "strategy", {"tensor", "channel", "group", "block", "tensor_group"});
  check_block(weights, "block_structure");
  if (is_float && weights.string_or("strategy", "") == "block" && !weights.has("block_structure")) {
    fail(Errc::BadInput, "{}: \"block_structure\" is missing", weights.origin());
  }
  const Json* order = weights.find("actorder");
  if (order == nullptr || order->is_null() || *order == false) return;
  if (order->is_string() && is_one_of(lower(order->get<std::string>()), {"weight", "static"}))
    return;
  fail(Errc::Unsupported,
       "{}: \"actorder\" is {}: columns in activation order are not supported, only \"weight\" is",
       weights.origin(), dump_json(*order).substr(0, 80));
}

// Calls visit(fields) for the weights of each group.
template <class Visit>
void for_each_weights(const JsonFields& block, Visit visit) {
  const Json* groups = block.find("config_groups");
  if (groups == nullptr || !groups->is_object()) return;
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) continue;
    const auto weights = group.find("weights");
    if (weights == group.end() || !weights->is_object()) continue;
    visit(JsonFields(*weights, fmt::format("{}.config_groups.{}", block.origin(), name)));
  }
}

void check_compressed_tensors(const JsonFields& block) {
  const Names kFormats{
      "dense",           "pack-quantized",       "int-quantized",        "float-quantized",
      "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"};
  need_one_of(block, "format", kFormats);
  const Json* groups = block.find("config_groups");
  if (groups != nullptr && groups->is_object()) {
    for (const auto& [name, group] : groups->items()) {
      if (group.is_object())
        need_one_of({group, fmt::format("{}.config_groups.{}", block.origin(), name)}, "format",
                    kFormats);
    }
  }
  for_each_weights(block, check_weights);
  const Json* sparsity = block.find("sparsity_config");
  if (sparsity != nullptr && sparsity->is_object() && !sparsity->empty()) {
    need_one_of({*sparsity, block.origin() + ".sparsity_config"}, "format", {"dense"});
  }
}

const Names kModelOptAlgorithms{
    "fp8", "nvfp4", "w4a16_nvfp4", "fp8_per_channel_per_token", "fp8_pc_pt", "mixed_precision"};

void check_modelopt(const JsonFields& block) {
  need_one_of(block, "quant_algo", kModelOptAlgorithms);
  const Json* layers = block.find("quantized_layers");
  if (layers == nullptr || !layers->is_object()) return;
  for (const auto& [name, layer] : layers->items()) {
    if (layer.is_object())
      need_one_of({layer, fmt::format("{}.quantized_layers.{}", block.origin(), name)},
                  "quant_algo", kModelOptAlgorithms);
  }
}

void check_mlx(const JsonFields& block) {
  const Names kModes{"affine", "mxfp4", "nvfp4", "mxfp8"};
  need_one_of(block, "mode", kModes);
  for (const auto& [module, entry] : block.object().items()) {
    if (entry.is_object())
      need_one_of({entry, fmt::format("{}.{}", block.origin(), module)}, "mode", kModes);
  }
}

void check_block_of(const std::string& method, const JsonFields& block) {
  if (method.empty()) return check_mlx(block);
  if (method == "fp8") return check_fp8(block);
  if (method == "gptq") return check_gptq(block);
  if (method == "awq") return check_awq(block);
  if (method == "compressed-tensors") return check_compressed_tensors(block);
  if (method == "modelopt" || method == "modelopt_fp4") return check_modelopt(block);
  if (method == "mxfp4") return;
  fail(Errc::Unsupported,
       "{}: quantization method \"{}\" is not supported; take a release in BF16, FP8, MXFP4, "
       "NVFP4, GPTQ, AWQ, compressed-tensors or of MLX",
       block.origin(), method);
}

void add_group(QuantSettings& settings, const JsonFields& fields) {
  const std::string strategy = fields.string_or("strategy", "");
  if (strategy == "channel" || strategy == "tensor") return settings.group_sizes.push_back(0);
  const std::int64_t group = fields.integer_or("group_size", 0, -1, kMaxGroup);
  if (group != 0) settings.group_sizes.push_back(std::max(group, std::int64_t{0}));
}

}  // namespace

void check_quantization(const Json& config, const std::string& origin) {
  for (const auto& [key, value] : quantization_blocks(config)) {
    const JsonFields block(*value, fmt::format("{}: {}", origin, key));
    check_block_of(block.string_or("quant_method", ""), block);
  }
}

const Json* quantization_block(const Json& config) {
  for (const auto& [key, value] : quantization_blocks(config)) {
    if (value->is_object() && value->contains("quant_method")) return value;
  }
  return nullptr;
}

QuantSettings quant_settings(const Json& config) {
  QuantSettings settings;
  const Json* found = quantization_block(config);
  if (found == nullptr) return settings;
  settings.origin = "quantization_config";
  const JsonFields block(*found, settings.origin);
  settings.method = block.string_or("quant_method", "");
  settings.is_gptq_v2 = lower(block.string_or("checkpoint_format", "")) == "gptq_v2";
  const Json* rules = block.find("dynamic");  // GPTQ: settings of single modules
  if (rules != nullptr && rules->is_object() && !rules->empty()) return settings;
  for (const char* bits : {"bits", "w_bit"})
    if (block.has(bits)) settings.bits.push_back(static_cast<int>(block.integer(bits, 0, 64)));
  if (block.has("group_size")) add_group(settings, block);
  for_each_weights(block, [&](const JsonFields& weights) {
    if (weights.has("num_bits"))
      settings.bits.push_back(static_cast<int>(weights.integer("num_bits", 0, 64)));
    add_group(settings, weights);
  });
  return settings;
}

int fp8_block_edge(const Json& config) {
  int edge = 0;
  for (const auto& [key, value] : quantization_blocks(config)) {
    if (!value->is_object()) continue;
    const auto look_in = [&](const Json& object, const char* name) {
      const auto it = object.find(name);
      if (edge == 0 && it != object.end()) edge = square_block(*it);
    };
    look_in(*value, "weight_block_size");
    for_each_weights({*value, key}, [&](const JsonFields& weights) {
      look_in(weights.object(), "block_structure");
    });
  }
  return edge > 0 ? edge : kDefaultFp8Block;
}

}  // namespace moeflux
