// Reader of the flash-moe directory, the layout of the original moeflux: resident tensors in
// model_weights.bin under the manifest model_weights.json, routed experts in
// packed_experts/layer_NN.bin (4-bit) or packed_experts_2bit/layer_NN.bin (2-bit), one blob an
// expert. The files may lie in one directory, or in parent/{mlx,artifacts,root}.
//
// Packed experts appear as tensors under their MLX names, [n_experts, rows, packed columns], whose
// slices are interleaved:
// `model.layers.N.mlp.switch_mlp.{gate,up,down}_proj.{weight,scales,biases}`.
#pragma once

#include <memory>
#include <string>

#include "source/model_source.h"

namespace moeflux {

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
