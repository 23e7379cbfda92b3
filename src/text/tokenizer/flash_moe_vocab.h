// The two vocabulary files of a flash-moe directory, little-endian, read and written.
//
// tokenizer.bin: "BPET", u32 version 1, u32 n_vocab, u32 n_merges, u32 n_added; the vocabulary: u32
// id, u16 length,
//   text in the byte-level alphabet; the merges by rank: u16 length, left, u16 length, right; the
//   added tokens: u32 id, u16 length, literal text.
// vocab.bin: u32 n_ids, u32 largest id; for each id from 0: u16 length, bytes (none for a gap).
#pragma once

#include <string>

#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

class Tokenizer;

// Texts are split as Qwen3.5 splits them: the file does not say, and those are the models it is
// made for.
TokenizerSpec read_bpet(const std::string& path);

// Decodes only.
TokenizerSpec read_vocab_bin(const std::string& path);

// The content of such files for a byte-level tokenizer. Unsupported when a token is too long for
// the format.
std::string write_bpet(const Tokenizer& tokenizer);
std::string write_vocab_bin(const Tokenizer& tokenizer);

}  // namespace moeflux
