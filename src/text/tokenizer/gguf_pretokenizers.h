// How texts are split before byte pairs merge, by the name that a GGUF file gives it in
// tokenizer.ggml.pre: the file has no patterns.
#pragma once

#include <string>

#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

// Sets normalizer, pre-tokenizer and what else the name stands for. Throws Unsupported naming it
// and the names that are known. `origin` names the file.
void set_gguf_pretokenizer(const std::string& name, const std::string& origin, TokenizerSpec& spec);

}  // namespace moeflux
