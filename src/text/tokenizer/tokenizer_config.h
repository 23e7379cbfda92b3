// What tokenizer_config.json adds to a tokenizer: names of special tokens, and tokens the other
// file does not list.
#pragma once

#include <string>

#include "base/json.h"
#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

// Adds the special tokens by name ("eos_token"), added tokens the spec lacks, add_bos_token and
// add_eos_token. A token with a role is special.
void read_tokenizer_config(const std::string& path, TokenizerSpec& spec);

// An added token without its id, as both files describe it.
AddedToken read_added_token(const Json& json, const std::string& origin);

}  // namespace moeflux
