#include "cli/terminal/channel_text.h"

#include <utility>

#include "text/replies/reply_json.h"

namespace moeflux::cli {

ChannelText::ChannelText(ReplyFormat format, bool opens_thought, const Json& tools) {
  ReplyOptions options;
  options.opens_thought = opens_thought;
  options.tools = tools;
  parser_ = make_reply_parser(format, options);
}

std::string_view ChannelText::feed(std::string_view text) {
  return write(parser_->feed(text));
}

std::string_view ChannelText::finish() {
  return write(parser_->finish());
}

std::string_view ChannelText::write(const ReplyPieces& pieces) {
  text_.clear();
  for (const ReplyPiece& piece : pieces) {
    if (const auto* thought = std::get_if<ReasoningDelta>(&piece)) {
      if (!std::exchange(in_thought_, true)) text_ += "<think>\n";
      text_ += thought->text;
      continue;
    }
    if (std::exchange(in_thought_, false)) text_ += "\n</think>\n\n";
    if (const auto* said = std::get_if<ContentDelta>(&piece)) {
      text_ += said->text;
    } else if (const auto* begin = std::get_if<ToolCallBegin>(&piece)) {
      text_ += "<tool_call>\n{\"name\": " + json_string(begin->name) + ", \"arguments\": ";
    } else if (const auto* arguments = std::get_if<ToolCallArguments>(&piece)) {
      text_ += arguments->json;
    } else {
      text_ += "}\n</tool_call>";
    }
  }
  return text_;
}

}  // namespace moeflux::cli
