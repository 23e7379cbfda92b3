// A synthetic model as a flash-moe directory: model_weights.bin with its manifest, and the experts
// of each layer in a file of packed blobs.
#include <bit>
#include <chrono>

#include "base/error.h"
#include "convert/affine_quantizer.h"
#include "convert/synth/synth_files.h"
#include "families/family.h"
#include "quant/codec.h"
#include "source/checkpoint_files.h"
#include "source/flash_moe.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kTensorAlignment = 64;
constexpr std::string_view kWeights = "model_weights.bin";
constexpr std::string_view kManifest = "model_weights.json";
constexpr std::string_view kExperts = "packed_experts/";

// The format's extractor makes this vector F32, whatever it was.
SynthPlan with_promoted_vectors(SynthPlan plan) {
  for (auto& tensor : plan.dense) {
    auto* vector = std::get_if<SynthVector>(&tensor);
    if (vector == nullptr || !vector->name.ends_with(".A_log")) continue;
    if (vector->dtype == DType::F32) continue;
    vector->dtype = DType::F32;
    vector->value = [value = std::move(vector->value)](std::int64_t i) {
      return static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(value(i)))));
    };
  }
  return plan;
}

std::string manifest_name(const std::string& name) {
  constexpr std::string_view kPrefix = "language_model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

Json manifest_config(const Json& config) {
  Json fields = Json::object();
  for (const auto& [key, value] : text_config(config).items()) {
    if (key != "rope_parameters" && key != "quantization" && key != "quantization_config") {
      fields[key] = value;
    }
  }
  if (const auto rope = text_config(config).find("rope_parameters");
      rope != text_config(config).end()) {
    for (const char* key : {"rope_theta", "partial_rotary_factor"}) fields[key] = rope->at(key);
  }
  fields["default_bits"] = 4;
  fields["default_group_size"] = kSynthGroup;
  return fields;
}

struct Weights {
  SynthFile file{.name = std::string(kWeights), .bytes = 0, .regions = {}};
  Json manifest;
};

Weights resident_weights(const std::vector<SynthDense>& dense, const Json& config,
                         const std::string& made_by) {
  Weights weights;
  Json tensors = Json::object();
  for (const SynthDense& tensor : dense) {
    SynthFile& file = weights.file;
    file.bytes = (file.bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    Json entry = {{"offset", file.bytes},
                  {"size", tensor.plane().bytes},
                  {"shape", tensor.plane().shape},
                  {"dtype", dtype_name(tensor.plane().dtype)}};
    if (tensor.bits() > 0) entry["bits"] = tensor.bits();
    tensors[manifest_name(tensor.plane().name)] = std::move(entry);
    file.regions.push_back(dense_region(tensor, file.bytes));
    file.bytes += tensor.plane().bytes;
  }
  weights.manifest = {{"model", made_by},
                      {"num_tensors", tensors.size()},
                      {"tensors", std::move(tensors)},
                      {"config", manifest_config(config)}};
  return weights;
}

SynthFile layer_file(const SynthBank& bank, const std::vector<SynthExpertPlane>& planes,
                     const PackedBlob& blob) {
  MOEFLUX_ASSERT(planes.size() == blob.parts.size());
  SynthFile file{.name = fmt::format("{}layer_{:02}.bin", kExperts, bank.layer),
                 .bytes = blob.bytes * static_cast<std::uint64_t>(bank.n_experts),
                 .regions = {}};
  file.regions.push_back(
      {.offset = 0,
       .bytes = file.bytes,
       .unit = blob.bytes,
       .fill = [&planes, &blob](std::uint64_t at, std::span<std::byte> out) {
         auto expert = static_cast<int>(at / blob.bytes);
         for (std::uint64_t done = 0; done < out.size(); done += blob.bytes, ++expert) {
           for (std::size_t p = 0; p < planes.size(); ++p) {
             planes[p].fill(expert, out.subspan(done + blob.parts[p].offset, blob.parts[p].bytes));
           }
         }
       }});
  return file;
}

Json layout_json(const SynthPlan& plan, const PackedBlob& blob) {
  Json components = Json::array(), layers = Json::array();
  for (const PackedPart& part : blob.parts) {
    components.push_back({{"name", part.name},
                          {"offset", part.offset},
                          {"size", part.bytes},
                          {"dtype", dtype_name(part.dtype)},
                          {"shape", part.shape}});
  }
  for (const SynthBank& bank : plan.banks) layers.push_back(bank.layer);
  return {{"expert_size", blob.bytes},
          {"num_layers", text_config(plan.config).at("num_hidden_layers")},
          {"num_experts", plan.banks.front().n_experts},
          {"moe_layers", std::move(layers)},
          {"components", std::move(components)}};
}

bool is_flash_moe_file(std::string_view name) {
  return name == kWeights || name == kManifest || name == "config.json" ||
         name.starts_with(kExperts);
}

}  // namespace

SynthReport write_synth_flash_moe(const SynthJob& job) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t seed = job.options.statistics.seed;
  const SynthPlan plan = with_promoted_vectors(job.plan);
  if (plan.banks.empty()) {
    fail(Errc::BadInput, "{}: this format needs a layer with experts; give more --layers",
         job.directory);
  }
  const std::vector<SynthMatrix>& expert = plan.banks.front().matrices;
  const PackedBlob blob = packed_blob({.n_experts = plan.banks.front().n_experts,
                                       .d_model = expert.front().cols,
                                       .d_ff = expert.front().rows,
                                       .group = kSynthGroup},
                                      4);
  const std::vector<SynthDense> dense = dense_planes(plan, seed);
  Weights weights = resident_weights(dense, plan.config, job.options.made_by);
  std::vector<SynthFile> files{std::move(weights.file)};
  std::vector<std::vector<SynthExpertPlane>> banks;
  std::uint64_t n_experts = 0;
  banks.reserve(plan.banks.size());
  for (const SynthBank& bank : plan.banks) {
    n_experts += static_cast<std::uint64_t>(bank.n_experts);
    files.push_back(layer_file(bank, banks.emplace_back(expert_planes(bank, seed)), blob));
  }

  SynthFileWriter writer(job, files, is_flash_moe_file);
  writer.write(files);
  for (const TextFile& file : job.text) writer.write_text(file.name, file.content);
  writer.write_text(std::string(kExperts) + "layout.json", dump_json(layout_json(plan, blob), 1));
  writer.write_text("config.json", dump_json(plan.config, 1) + "\n");
  writer.write_text(std::string(kManifest), dump_json(weights.manifest, 1) + "\n");
  describe_model(*open_source(job.directory));
  return {.bytes = plan.bytes,
          .n_tensors = dense.size(),
          .n_experts = n_experts,
          .write_seconds =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace moeflux
