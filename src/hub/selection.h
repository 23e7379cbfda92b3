// Which files of a repository a model is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hub/repository.h"

namespace moeflux {

struct FileChoice {
  std::vector<std::string> include = {}, exclude = {};  // patterns with * and ?, of whole paths
  std::string tag = {};                                 // of GGUF: "Q4_K_M"
  std::string file = {};                                // this one, with its other parts
};

// With `include`, the files that match. Else what opens as a model: safetensors with config,
// tokenizer and templates, or one GGUF file with its parts, or a container. Throws Error(NotFound)
// or Error(BadInput) that lists what there is where nothing fits or several do.
std::vector<HubFile> choose_files(const HubListing& listing, const FileChoice& choice);

}  // namespace moeflux
