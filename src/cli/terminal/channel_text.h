// A reply of Harmony or Gemma as the text that other models write: thoughts and calls between tags.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/replies/reply_parser.h"

namespace moeflux::cli {

class ChannelText {
 public:
  // `tools`: those that may be called, or null.
  ChannelText(ReplyFormat format, bool opens_thought, const Json& tools);

  // Each valid until the next.
  std::string_view feed(std::string_view text);
  std::string_view finish();

 private:
  std::string_view write(const ReplyPieces& pieces);

  std::unique_ptr<ReplyParser> parser_;
  std::string text_;
  bool in_thought_ = false;
};

}  // namespace moeflux::cli
