// The text side of a synthetic model: a made-up vocabulary of the released size, with control
// tokens (those of Qwen and DeepSeek at their released ids), and a plain chat template. Bytes are
// tokens, and merges build letters into pairs, words of three, and more, so that a prompt of
// ordinary text becomes some three letters a token and many different tokens.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "convert/model_files.h"

namespace moeflux {

// Adds the ids of the tokens that begin and end a text to a model's config.
void add_token_ids(Json& config);

// tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json.
std::vector<TextFile> synth_text_files(const Json& config);

}  // namespace moeflux
