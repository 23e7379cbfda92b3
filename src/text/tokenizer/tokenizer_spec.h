// All a file says about a tokenizer, as plain data. Readers of file formats fill one; Tokenizer is
// built from it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/token_decoder.h"

namespace moeflux {

struct TokenizerSpec {
  std::string origin;  // the file, for messages

  // No id and no text twice.
  std::vector<VocabEntry> vocab;
  std::vector<MergeRule> merges;
  enum class MergeOrder { Listed, ById } merge_order = MergeOrder::Listed;
  BpeOptions bpe;

  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  TokenDecoder decoder;

  // What the file puts around a text that is not a chat.
  std::vector<TokenId> prefix, suffix;

  std::map<std::string, std::string> special_tokens;  // "eos_token" -> "<|im_end|>"
  bool add_bos = false;
  bool add_eos = false;

  // Why texts cannot be encoded, and what to do about it; empty when they can.
  std::string decode_only;
};

}  // namespace moeflux
