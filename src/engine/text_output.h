// The tokens of an answer as text that is safe to show: never half a character, never the beginning
// of a stop string. Special tokens have no text, but for those that are asked for: markers that
// whoever reads the text has to see (text/replies/reply_format.h).
#pragma once

#include <string>
#include <vector>

#include "base/token_id.h"
#include "text/replies/stop_strings.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

class Tokenizer;

class TextOutput {
 public:
  // `tokenizer` must outlive this. Throws Error(BadInput) for a bad stop string.
  TextOutput(const Tokenizer& tokenizer, std::vector<std::string> stops,
             std::vector<TokenId> shown_special = {})
      : tokenizer_(&tokenizer),
        decoder_(tokenizer),
        stops_(std::move(stops)),
        shown_special_(std::move(shown_special)) {}

  // What has become certain, and the stop string that ended the text, if one did: feed no more.
  StopMatcher::Output feed(TokenId token);

  // The end of the answer: what was held back. Its last characters may still complete a stop
  // string.
  StopMatcher::Output finish();

 private:
  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  std::vector<TokenId> shown_special_;
};

}  // namespace moeflux
