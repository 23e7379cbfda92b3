// Reads a Hugging Face tokenizer.json with a byte-pair model. What a file asks for and we do not do
// is refused by its name.
#pragma once

#include <string>

#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

TokenizerSpec read_tokenizer_json(const std::string& path);

}  // namespace moeflux
