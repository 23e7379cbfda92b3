// Token ids in, text out, as they come. Text never ends inside of a character: bytes of an
// unfinished one wait for the next token. All texts together are what Tokenizer::decode() makes of
// all ids.
#pragma once

#include <cstddef>
#include <string>

#include "base/token_id.h"

namespace moeflux {

class Tokenizer;

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
