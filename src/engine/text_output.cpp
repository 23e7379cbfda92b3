#include "engine/text_output.h"

#include <algorithm>

#include "text/tokenizer/tokenizer.h"

namespace moeflux {

StopMatcher::Output TextOutput::feed(TokenId token) {
  const bool is_shown =
      !tokenizer_->is_special(token) ||
      std::find(shown_special_.begin(), shown_special_.end(), token) != shown_special_.end();
  return stops_.feed(is_shown ? decoder_.feed(token) : std::string());
}

StopMatcher::Output TextOutput::finish() {
  StopMatcher::Output output = stops_.feed(decoder_.finish());
  if (!output.stopped_by.has_value()) output.text += stops_.finish();
  return output;
}

}  // namespace moeflux
