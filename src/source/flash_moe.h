// Reader of the flash-moe directory, the layout of the original moeflux: resident tensors in
// model_weights.bin under the manifest model_weights.json, routed experts in
// packed_experts/layer_NN.bin (4-bit) or packed_experts_2bit/layer_NN.bin (2-bit), one blob an
// expert. The files may lie in one directory, or in parent/{mlx,artifacts,root}.
//
// Packed experts appear as tensors under their MLX names, [n_experts, rows, packed columns], whose
// slices are interleaved:
// `model.layers.N.mlp.switch_mlp.{gate,up,down}_proj.{weight,scales,biases}`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "source/model_source.h"

namespace moeflux {

// The blob of one expert in a flash-moe layer file: nine parts back to back, weight, scales and
// biases of gate_proj, up_proj and down_proj. The format has no header: sizes follow from the
// model's, and the bits from the size of the file.
struct ExpertSizes {
  int n_experts = 0;
  std::int64_t d_model = 0;
  std::int64_t d_ff = 0;
  std::int64_t group = 64;  // divides both
};

struct PackedPart {
  std::string name;  // "gate_proj.weight"
  DType dtype = DType::U32;
  std::vector<std::int64_t> shape;  // of one expert
  std::uint64_t offset = 0;         // in the blob
  std::uint64_t bytes = 0;
};

struct PackedBlob {
  int bits = 0;
  std::uint64_t bytes = 0;
  std::vector<PackedPart> parts;
};
PackedBlob packed_blob(const ExpertSizes& sizes, int bits);

// Adds the nine tensors of one layer, named module + part ("model.layers.3.mlp.switch_mlp." +
// "gate_proj.weight"). `layout` is the path of a layout.json to check against, or empty.
void add_packed_layer(ModelSource& source, const std::string& path, const std::string& module,
                      const ExpertSizes& sizes, const std::string& layout);

// True when the directory (or its artifacts/) has the manifest.
bool holds_flash_moe(const std::string& directory);

std::shared_ptr<const ModelSource> open_flash_moe(const std::string& directory);

// The same files by their own paths, as the original engine takes them. config.json, tokenizer and
// template are used where they lie beside one of the files or in mlx/ beside their directory.
struct FlashMoePaths {
  std::string weights;        // model_weights.bin
  std::string manifest;       // model_weights.json
  std::string vocab;          // vocab.bin; empty: none
  std::string experts;        // the directory that holds packed_experts
  bool two_bit = false;       // packed_experts_2bit instead
  int experts_per_token = 0;  // 0, or fewer than the model's own
};
std::shared_ptr<const ModelSource> open_flash_moe(const FlashMoePaths& paths);

}  // namespace moeflux
