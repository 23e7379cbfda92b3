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

}  // namespace moeflux
