#include "text/tokenizer/stream_decoder.h"

#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      spaces_to_drop_(tokenizer.leading_spaces()) {}

std::string StreamDecoder::feed(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  std::string_view bytes = tokenizer_->token_bytes(id);
  while (spaces_to_drop_ > 0 && !bytes.empty()) {
    if (!bytes.starts_with(' ')) {
      spaces_to_drop_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --spaces_to_drop_;
  }
  waiting_ += bytes;

  std::string text;
  std::size_t at = 0;
  while (at < waiting_.size()) {
    const Utf8Step step = decode_utf8(waiting_, at);
    if (step.truncated) break;
    if (step.valid) {
      text.append(waiting_, at, step.length);
    } else {
      text += kReplacementCharacter;
    }
    at += step.length;
  }
  waiting_.erase(0, at);
  return text;
}

std::string StreamDecoder::finish() {
  spaces_to_drop_ = tokenizer_->leading_spaces();
  return replace_invalid_utf8(std::exchange(waiting_, {}));
}

}  // namespace moeflux
