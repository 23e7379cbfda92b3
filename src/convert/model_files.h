// The files of a container that are not weights: its config and what belongs to the text.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "source/model_source.h"

namespace moeflux {

struct TextFile {
  std::string name;
  std::string content;
};

// The text model's part of the source's config. How weights are quantized shows in their shapes, so
// the blocks that say it, and would be wrong after requantizing, are left out; only the edge of FP8
// blocks does not show and is kept.
Json container_config(const ModelSource& source, bool has_fp8);

// config.json, generation_config.json, the tokenizer and the chat template.
std::vector<TextFile> container_text_files(const ModelSource& source, bool has_fp8);

}  // namespace moeflux
