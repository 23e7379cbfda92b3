// Reader of safetensors checkpoints, as Hugging Face and MLX write them: one model.safetensors, or
// shards with model.safetensors.index.json, or model*.safetensors shards without an index.
// Every header is read and checked at open; no tensor data is.
#pragma once

#include <memory>
#include <string>

#include "source/model_source.h"

namespace moeflux {

// True when the directory holds an index or a file that open_safetensors_directory() would take.
bool holds_safetensors(const std::string& directory);

std::shared_ptr<const ModelSource> open_safetensors_directory(const std::string& directory);

// One file that is a whole checkpoint, with config.json and the tokenizer beside it.
std::shared_ptr<const ModelSource> open_safetensors_file(const std::string& path);

// One file as a bag of tensors: no config, no tokenizer.
std::shared_ptr<const ModelSource> open_tensor_file(const std::string& path);

}  // namespace moeflux
