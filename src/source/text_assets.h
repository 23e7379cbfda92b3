// Finds the tokenizer files and the chat template of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "source/model_source.h"

namespace moeflux {

// Each file is taken from the first of the directories that has it. A template that is there but
// cannot be one (not text, not a string or a list of named strings) is an Error.
TextAssets find_text_assets(const std::vector<std::string>& directories);

}  // namespace moeflux
