// All a file says about a tokenizer, as plain data. Readers of file formats fill one; Tokenizer is
// built from it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pretokenizer.h"

namespace moeflux {

// How the texts of tokens become the bytes of output. All that the supported decoders do to one
// token alone is done once, when a vocabulary is loaded; what depends on the place in the output is
// leading_spaces.
struct TokenDecoder {
  bool byte_level = false;     // visible characters stand for bytes
  bool byte_fallback = false;  // <0x0A> stands for a byte
  std::vector<std::pair<std::string, std::string>> replacements;  // what, by what
  std::size_t leading_spaces = 0;  // dropped from the start of output

  // A token with a character outside of the byte-level alphabet is literal text.
  std::string to_bytes(std::string_view token) const;
};

struct TokenizerSpec {
  std::string origin;  // the file, for messages

  // No id and no text twice.
  std::vector<VocabEntry> vocab;
  std::vector<MergeRule> merges;
  enum class MergeOrder { Listed, ById, ByScore } merge_order = MergeOrder::Listed;
  std::vector<float> scores;  // ByScore: of each of the vocabulary
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
