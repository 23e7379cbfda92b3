// A family turns a checkpoint's own vocabulary (config keys, tensor names, conventions) into the
// engine's: a ModelConfig and a ModelIndex. Adding a family means one folder here and one line in
// registry.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/model_config.h"
#include "source/model_source.h"

namespace moeflux {

struct Family {
  std::string_view name;
  std::span<const std::string_view> model_types;  // values of config.json's "model_type" it reads
  ModelConfig (*read_config)(const ModelSource& source);
  ModelIndex (*read_index)(const ModelSource& source, const ModelConfig& config);
  // Tokens that end a turn whatever generation_config.json says, where the tokenizer has them.
  std::span<const std::string_view> end_tokens;
};

std::span<const Family* const> families();

struct ModelDescription {
  const Family* family = nullptr;
  ModelConfig config;
  ModelIndex index;
};

// Recognises the family, reads and validates everything. Throws Error naming what is unsupported or
// wrong; nothing about the model can fail after this but I/O and memory.
ModelDescription describe_model(const ModelSource& source);

}  // namespace moeflux
