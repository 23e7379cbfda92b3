// The steps around the model in a tokenizer.json: normalizer, pre_tokenizer, post_processor,
// decoder. Steps we do not have are refused by their name. `origin` names file and field in
// messages; a null section means nothing is done.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/token_id.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/token_decoder.h"

namespace moeflux {

Normalizer read_normalizer(const Json& json, const std::string& origin);
Pretokenizer read_pretokenizer(const Json& json, const std::string& origin);
TokenDecoder read_decoder(const Json& json, const std::string& origin);

// What is put before and after a single text.
void read_post_processor(const Json& json, const std::string& origin, std::vector<TokenId>& prefix,
                         std::vector<TokenId>& suffix);

}  // namespace moeflux
