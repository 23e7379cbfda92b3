// A tiktoken rank file ("tiktoken.model"): one token on a line, its bytes in base64 and its rank,
// which is its id. The file has neither a split pattern nor control tokens: the pattern is
// Kimi-K2's, whose checkpoints carry such a file, and the control tokens come from
// tokenizer_config.json.
#pragma once

#include <string>

#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

TokenizerSpec read_tiktoken_ranks(const std::string& path);

}  // namespace moeflux
