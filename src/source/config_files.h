// config.json and generation_config.json of a checkpoint. A config that asks for a way of storing
// weights that this engine does not read is refused here, by its name, before any tensor is looked
// at.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace moeflux {

// A JSON object whose quantization can be read. Throws Error when the file is missing.
Json read_config(const std::string& path);

// From the first directory that has one; {} when none has.
Json read_generation_config(const std::vector<std::string>& directories);

// The object that holds the sizes of the text model: config["text_config"] of a multimodal
// checkpoint, else the config itself.
const Json& text_config(const Json& config);

// Throws Unsupported for a quantization other than MLX affine and FP8 with square blocks.
void check_quantization(const Json& config, const std::string& origin);

// Edge of the square of an FP8 matrix that shares a scale; 128 when the config does not say.
int fp8_block_edge(const Json& config);

}  // namespace moeflux
