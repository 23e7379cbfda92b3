// The files that tokenizers are read from: tokenizer.json and tokenizer_config.json of Hugging
// Face, tiktoken rank files, GGUF files, and the two vocabulary files of a flash-moe directory.
// What a file asks for and we do not do is refused by its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/token_id.h"
#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

// ---- tokenizer.json with a byte-pair model

TokenizerSpec read_tokenizer_json(const std::string& path);

// The steps around the model. `origin` names file and field in messages; a null section means
// nothing is done.
Normalizer read_normalizer(const Json& json, const std::string& origin);
Pretokenizer read_pretokenizer(const Json& json, const std::string& origin);
TokenDecoder read_decoder(const Json& json, const std::string& origin);
// What is put before and after a single text.
void read_post_processor(const Json& json, const std::string& origin, std::vector<TokenId>& prefix,
                         std::vector<TokenId>& suffix);

// ---- tokenizer_config.json

// Adds the special tokens by name ("eos_token"), added tokens the spec lacks, add_bos_token and
// add_eos_token. A token with a role is special.
void read_tokenizer_config(const std::string& path, TokenizerSpec& spec);

// ---- tiktoken.model

// One token on a line: its bytes in base64 and its rank, which is its id. The file has neither a
// split pattern nor control tokens: the pattern is Kimi-K2's, whose checkpoints carry such a file,
// and the control tokens come from tokenizer_config.json.
TokenizerSpec read_tiktoken_ranks(const std::string& path);

// ---- GGUF

// The keys tokenizer.ggml.* of a file: byte-level pairs ("gpt2"), pairs by score ("llama"), pairs
// of characters ("gemma4"). Patterns follow from the name in tokenizer.ggml.pre.
TokenizerSpec read_gguf_vocabulary(const std::string& path);

// ---- flash-moe, little-endian

// tokenizer.bin: "BPET", u32 version 1, u32 n_vocab, u32 n_merges, u32 n_added; the vocabulary: u32
//   id, u16 length, text in the byte-level alphabet; the merges by rank: u16 length, left, u16
//   length, right; the added tokens: u32 id, u16 length, literal text.
// Texts are split as Qwen3.5 splits them: the file does not say, and those are the models it is
// made for.
TokenizerSpec read_bpet(const std::string& path);

// vocab.bin: u32 n_ids, u32 largest id; for each id from 0: u16 length, bytes (none for a gap).
// Decodes only.
TokenizerSpec read_vocab_bin(const std::string& path);

// ---- split patterns of vocabularies whose files do not carry one

// GPT-2; what "use_regex" of a byte-level pre-tokenizer means.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Qwen3.5 and later; a tokenizer.bin is read with it.
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Kimi-K2; a tiktoken rank file is read with it.
inline constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace moeflux
