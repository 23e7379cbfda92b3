// Text to token ids and back, with the vocabulary and the rules of a model's own files.
//
// Immutable after construction: any number of threads may use one. Text to encode must be valid
// UTF-8 (BadInput names the first bad byte); decoding never fails, and writes U+FFFD for bytes that
// are no UTF-8.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/chat/marked_text.h"
#include "text/tokenizer/tokenizer_spec.h"

namespace moeflux {

class Tokenizer {
 public:
  explicit Tokenizer(TokenizerSpec spec);

  // A Hugging Face tokenizer.json; tokenizer_config.json adds special tokens and may be "".
  static Tokenizer from_json_file(const std::string& tokenizer_json,
                                  const std::string& tokenizer_config);
  // A tiktoken rank file; the control tokens come from tokenizer_config.json.
  static Tokenizer from_tiktoken_file(const std::string& ranks,
                                      const std::string& tokenizer_config);
  // The vocabulary of a GGUF file.
  static Tokenizer from_gguf_file(const std::string& path);
  // The two files of flash-moe: tokenizer.bin, and vocab.bin, which can only decode.
  static Tokenizer from_bpet_file(const std::string& path);
  static Tokenizer from_vocab_bin_file(const std::string& path);

  // Added tokens are found where the text is markup; one that would take in a byte of data is plain
  // text. Apart from that, markup and data are tokenized as the one text they are.
  std::vector<TokenId> encode(const MarkedText& text) const;
  std::vector<TokenId> encode_markup(std::string_view text) const;  // every added token counts
  std::vector<TokenId> encode_data(std::string_view text) const;    // none does

  // With the tokens that the tokenizer puts around a text that is not a chat, such as bos. Chat
  // templates write these tokens themselves.
  std::vector<TokenId> with_special_tokens(std::vector<TokenId> ids) const;

  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The bytes a token stands for: perhaps part of a character. Empty for an id without a token.
  std::string_view token_bytes(TokenId id) const;

  // By the text of an added token or the bytes of another.
  std::optional<TokenId> find_token(std::string_view content) const;
  bool is_added(TokenId id) const;
  bool is_special(TokenId id) const;
  // The largest id + 1; not every id has a token.
  std::size_t n_ids() const { return kinds_.size(); }

  std::optional<TokenId> bos() const { return special_id("bos_token"); }
  std::optional<TokenId> eos() const { return special_id("eos_token"); }
  bool add_bos() const { return add_bos_; }
  // "bos_token" -> "<s>", ...: the names chat templates know.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

  bool can_encode() const { return decode_only_.empty(); }
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }  // ascending ids
  std::size_t leading_spaces() const { return leading_spaces_; }  // decode() drops so many

 private:
  struct Work;
  enum class Kind : unsigned char { Absent, Plain, Added, Special };  // Special ones are added
  std::vector<TokenId> encode_ranges(std::string_view text,
                                     const std::vector<ByteRange>& markup) const;
  void encode_part(std::string_view text, ByteRange part, const std::vector<ByteRange>& markup,
                   Work& work) const;
  std::map<TokenId, std::string> store_added_tokens(const TokenizerSpec& spec);
  Kind kind(TokenId id) const;
  void store_tokens(const TokenizerSpec& spec, const std::map<TokenId, std::string>& added_texts);
  std::optional<TokenId> special_id(const std::string& name) const;

  std::string origin_;
  std::string decode_only_;
  BpeModel model_;
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  std::vector<AddedToken> added_tokens_;
  AddedTokenMatcher raw_matcher_;         // of tokens matched before normalization
  AddedTokenMatcher normalized_matcher_;  // and after
  std::map<std::string, TokenId, std::less<>> added_ids_;

  std::vector<Kind> kinds_;               // by id
  std::string bytes_;                     // of all tokens, by id
  std::vector<std::size_t> bytes_begin_;  // by id, and the end

  std::size_t leading_spaces_;
  std::vector<TokenId> prefix_, suffix_;
  std::map<std::string, std::string> special_tokens_;
  bool add_bos_;
};

// Token ids in, text out, as they come. Text never ends inside of a character: bytes of an
// unfinished one wait for the next token. All texts together are what Tokenizer::decode() makes of
// all ids.
class StreamDecoder {
 public:
  // `tokenizer` must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);

  // The text that is certain now; perhaps "".
  std::string feed(TokenId id);

  // What waited, an unfinished character as U+FFFD. The decoder can then start over.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::size_t spaces_to_drop_;  // at the very start
  std::string waiting_;
};

}  // namespace moeflux
