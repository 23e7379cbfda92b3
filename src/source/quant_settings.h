// What a config says of how weights are quantized. Which format a matrix has follows from the
// tensors that are there; settings matter where shapes do not tell (GPTQ's convention for zero
// points, the edges of FP8 blocks), and else are compared with the shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace moeflux {

struct QuantSettings {
  std::string method;     // "gptq"; of MLX and of none empty
  std::string origin;     // the block, for messages: "quantization_config"
  std::vector<int> bits;  // that a code may have; empty: not said
  std::vector<std::int64_t>
      group_sizes;          // that a matrix may have, 0 for one per row; empty: not said
  bool is_gptq_v2 = false;  // zero points are stored as they are
};

// Throws Unsupported, naming the key, for a method, mode or setting that is not read.
void check_quantization(const Json& config, const std::string& origin);

// The block that names its method; null when there is none (MLX names none).
const Json* quantization_block(const Json& config);

// Of a config that has passed the check.
QuantSettings quant_settings(const Json& config);

// Edge of the square of an FP8 matrix that shares a scale; 128 when the config does not say.
int fp8_block_edge(const Json& config);

}  // namespace moeflux
