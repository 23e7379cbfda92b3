#include "support/flash_moe_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "quant/codec.h"
#include "source/checkpoint_files.h"
#include "source/flash_moe.h"
#include "source/tensor_lookup.h"
#include "support/safetensors_writer.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

struct Directories {
  std::string text, weights, experts;
};

std::string without_prefix(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

std::string read_bytes(const ModelSource& source, const Extent& extent) {
  std::string bytes(extent.bytes, '\0');
  source.read(extent, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

bool is_resident(const std::string& name) {
  return !name.starts_with("mtp.") && !name.starts_with("vision_tower") &&
         !name.starts_with("model.visual") && name.find(".switch_mlp.") == std::string::npos;
}

// The bits of a module come from the config's quantization block, as in the extractors.
int module_bits(const Json& config, const std::string& tensor) {
  const Json& block = config.at("quantization");
  const std::string module = tensor.substr(0, tensor.rfind('.'));
  const auto it = block.find(module);
  return it != block.end() && it->is_object() ? it->at("bits").get<int>()
                                              : block.at("bits").get<int>();
}

std::string promote_bf16(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 2);
  decode_floats(DType::BF16, std::as_bytes(std::span(bytes)).data(),
                static_cast<std::int64_t>(values.size()), values.data());
  const auto raw = std::as_bytes(std::span(values));
  std::string out;
  for (const std::byte b : raw) out.push_back(std::to_integer<char>(b));
  return out;
}

Json manifest_config(const ModelSource& source) {
  const Json& text = text_config(source.config());
  const Json& block = source.config().at("quantization");
  Json config = Json::object();
  for (const char* key : {"hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "vocab_size",
                          "rms_norm_eps",
                          "num_experts",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "shared_expert_intermediate_size",
                          "full_attention_interval",
                          "linear_num_value_heads",
                          "linear_num_key_heads",
                          "linear_key_head_dim",
                          "linear_value_head_dim",
                          "linear_conv_kernel_dim",
                          "partial_rotary_factor",
                          "layer_types",
                          "n_routed_experts",
                          "n_shared_experts",
                          "n_group",
                          "topk_group",
                          "first_k_dense_replace",
                          "intermediate_size",
                          "qk_nope_head_dim",
                          "qk_rope_head_dim",
                          "v_head_dim",
                          "q_lora_rank",
                          "kv_lora_rank",
                          "rope_theta",
                          "rope_scaling",
                          "routed_scaling_factor"}) {
    if (text.contains(key)) config[key] = text[key];
  }
  if (text.contains("rope_parameters"))
    config["rope_theta"] = text["rope_parameters"]["rope_theta"];
  config["default_bits"] = block.at("bits");
  config["default_group_size"] = block.at("group_size");
  return config;
}

void write_resident(const ModelSource& source, const std::string& directory) {
  constexpr std::size_t kAlignment = 64;
  std::string data;
  Json tensors = Json::object();
  for (const auto& [full_name, info] : source.tensors()) {
    const std::string name = without_prefix(full_name, "language_model.");
    if (!is_resident(name)) continue;
    data.resize((data.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    std::string bytes = read_bytes(source, info.extent());
    const bool promote = name.ends_with(".A_log") && info.dtype == DType::BF16;
    if (promote) bytes = promote_bf16(bytes);
    Json entry{{"offset", data.size()},
               {"size", bytes.size()},
               {"shape", info.shape},
               {"dtype", promote ? "F32" : std::string(dtype_name(info.dtype))}};
    if (info.dtype == DType::U32) entry["bits"] = module_bits(source.config(), full_name);
    tensors[name] = std::move(entry);
    data += bytes;
  }
  const Json manifest{{"model", source.path()},
                      {"num_tensors", tensors.size()},
                      {"tensors", tensors},
                      {"config", manifest_config(source)}};
  write_file(directory + "/model_weights.bin", data);
  write_file(directory + "/model_weights.json", dump_json(manifest, 2));
}

struct TwoBitRow {
  std::string codes, scales, biases;
};

void append_bf16_truncated(std::string& out, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value) >> 16;
  out.push_back(static_cast<char>(bits & 0xFF));
  out.push_back(static_cast<char>(bits >> 8));
}

// The original tool's rule: codes are chosen with the exact scale and bias, which are then stored
// truncated to BF16.
void append_two_bit_group(TwoBitRow& out, std::span<const float> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float scale = (*high - *low) / 3;
  const float divisor = scale == 0 ? 1 : scale;
  for (std::size_t i = 0; i < values.size(); i += 4) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const float code = std::clamp(std::nearbyint((values[i + j] - *low) / divisor), 0.0f, 3.0f);
      byte |= static_cast<unsigned>(code) << (2 * j);
    }
    out.codes.push_back(static_cast<char>(byte));
  }
  append_bf16_truncated(out.scales, scale);
  append_bf16_truncated(out.biases, *low);
}

std::string two_bit_planes(const ModelSource& source, const StoredMatrix& matrix) {
  const std::string data = read_bytes(source, matrix.data);
  const std::string scales = read_bytes(source, matrix.scales);
  const std::string biases = read_bytes(source, matrix.biases);
  const WeightView view{.format = matrix.format,
                        .rows = matrix.rows,
                        .cols = matrix.cols,
                        .data = std::as_bytes(std::span(data)).data(),
                        .scales = std::as_bytes(std::span(scales)).data(),
                        .biases = std::as_bytes(std::span(biases)).data()};
  TwoBitRow out;
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  const auto group = static_cast<std::size_t>(matrix.format.group);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    decode_row(view, r, row.data());
    for (std::size_t c = 0; c < row.size(); c += group) {
      append_two_bit_group(out, std::span(row).subspan(c, group));
    }
  }
  return out.codes + out.scales + out.biases;
}

std::string own_planes(const ModelSource& source, const StoredMatrix& matrix) {
  return read_bytes(source, matrix.data) + read_bytes(source, matrix.scales) +
         read_bytes(source, matrix.biases);
}

void write_layout(const std::string& path, const ExpertSizes& sizes, const PackedBlob& blob) {
  Json components = Json::array();
  for (const PackedPart& part : blob.parts) {
    components.push_back({{"name", part.name},
                          {"offset", part.offset},
                          {"size", part.bytes},
                          {"dtype", std::string(dtype_name(part.dtype))},
                          {"shape", part.shape}});
  }
  const Json layout{
      {"expert_size", blob.bytes}, {"num_experts", sizes.n_experts}, {"components", components}};
  write_file(path, dump_json(layout, 1));
}

ExpertSizes sizes_of(const ModelSource& source) {
  const Json& text = text_config(source.config());
  const char* count = text.contains("n_routed_experts") ? "n_routed_experts" : "num_experts";
  return {.n_experts = text.at(count).get<int>(),
          .d_model = text.at("hidden_size").get<std::int64_t>(),
          .d_ff = text.at("moe_intermediate_size").get<std::int64_t>(),
          .group = source.config().at("quantization").at("group_size").get<std::int64_t>()};
}

void write_experts(const ModelSource& source, const std::string& root,
                   const FlashMoeOptions& options) {
  const bool two_bit = options.expert_bits == 2;
  const std::string directory = root + (two_bit ? "/packed_experts_2bit" : "/packed_experts");
  fs::create_directories(directory);
  const ExpertSizes sizes = sizes_of(source);
  const int n_layers = text_config(source.config()).at("num_hidden_layers").get<int>();
  const bool wrapped = source.find("language_model.model.norm.weight") != nullptr;
  for (int layer = 0; layer < n_layers; ++layer) {
    const std::string module =
        fmt::format("{}model.layers.{}.mlp.switch_mlp.", wrapped ? "language_model." : "", layer);
    if (!has_module(source, module + "gate_proj")) continue;
    const auto bank = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      return find_stacked_matrices(source, module + name, sizes.n_experts, rows, cols);
    };
    const StoredExpertBank banks[] = {bank("gate_proj", sizes.d_ff, sizes.d_model),
                                      bank("up_proj", sizes.d_ff, sizes.d_model),
                                      bank("down_proj", sizes.d_model, sizes.d_ff)};
    std::string blobs;
    for (int e = 0; e < sizes.n_experts; ++e) {
      for (const StoredExpertBank& each : banks) {
        blobs += two_bit ? two_bit_planes(source, each.at(e)) : own_planes(source, each.at(e));
      }
    }
    write_file(fmt::format("{}/layer_{:02}.bin", directory, layer), blobs);
  }
  if (options.layout_json) {
    write_layout(directory + "/layout.json", sizes, packed_blob(sizes, options.expert_bits));
  }
}

}  // namespace

void write_flash_moe(const ModelSource& source, const std::string& directory,
                     const FlashMoeOptions& options) {
  const bool split = options.tree == FlashMoeOptions::Tree::ParentOfThree;
  const Directories at =
      split ? Directories{directory + "/mlx", directory + "/artifacts", directory + "/root"}
            : Directories{directory, directory, directory};
  for (const std::string& path : {at.text, at.weights, at.experts}) fs::create_directories(path);
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja"}) {
    if (std::string_view(name) == "config.json" && !options.config_json) continue;
    const std::string from = source.path() + "/" + name;
    if (file_exists(from)) write_file(at.text + "/" + name, read_text_file(from));
  }
  write_resident(source, at.weights);
  write_experts(source, at.experts, options);
}

}  // namespace moeflux::test
