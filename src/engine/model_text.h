// The text side of a checkpoint. Tokenizer and templates are loaded by engine.h.
#pragma once

#include <vector>

#include "base/token_id.h"
#include "families/family.h"
#include "source/model_source.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

// Which tokens end an answer: files of a checkpoint disagree, and stopping at only one of them
// makes models run on, so it is the union of what every file and the family say. Ascending, each
// once. `tokenizer` may be null.
std::vector<TokenId> find_stop_tokens(const ModelSource& source, const Family& family,
                                      const Tokenizer* tokenizer);

}  // namespace moeflux
