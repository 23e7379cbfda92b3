#include "text/replies/reply_markup.h"

#include "base/error.h"
#include "text/replies/reply_calls.h"

// DeepSeek's full-width bar and its low block, which stands for a space.
#define BAR "\xEF\xBD\x9C"
#define GAP "\xE2\x96\x81"

namespace moeflux {

const TaggedMarkup& tagged_markup(ReplyFormat format) {
  static constexpr TaggedMarkup kQwen{
      .block_begin = kToolCallBegin,
      .block_end = kToolCallEnd,
      .function_begin = "<function=",
      .function_open = ">",
      .function_end = "</function>",
      .parameter_begin = "<parameter=",
      .parameter_open = ">",
      .parameter_end = "</parameter>",
      .lines = true,
      .names_string = false,
  };
  static constexpr TaggedMarkup kDeepSeek{
      .block_begin = "<" BAR "DSML" BAR "function_calls>",
      .block_end = "</" BAR "DSML" BAR "function_calls>",
      .function_begin = "<" BAR "DSML" BAR "invoke name=\"",
      .function_open = "\">",
      .function_end = "</" BAR "DSML" BAR "invoke>",
      .parameter_begin = "<" BAR "DSML" BAR "parameter name=\"",
      .parameter_open = "\">",
      .parameter_end = "</" BAR "DSML" BAR "parameter>",
      .lines = false,
      .names_string = true,
  };
  MOEFLUX_ASSERT(format == ReplyFormat::QwenXml || format == ReplyFormat::DeepSeekXml);
  return format == ReplyFormat::QwenXml ? kQwen : kDeepSeek;
}

const MarkedMarkup& marked_markup(ReplyFormat format) {
  static constexpr MarkedMarkup kDeepSeek{
      .section_begin = "<" BAR "tool" GAP "calls" GAP "begin" BAR ">",
      .section_end = "<" BAR "tool" GAP "calls" GAP "end" BAR ">",
      .call_begin = "<" BAR "tool" GAP "call" GAP "begin" BAR ">",
      .separator = "<" BAR "tool" GAP "sep" BAR ">",
      .call_end = "<" BAR "tool" GAP "call" GAP "end" BAR ">",
      .numbered = false,
  };
  static constexpr MarkedMarkup kKimi{
      .section_begin = "<|tool_calls_section_begin|>",
      .section_end = "<|tool_calls_section_end|>",
      .call_begin = "<|tool_call_begin|>",
      .separator = "<|tool_call_argument_begin|>",
      .call_end = "<|tool_call_end|>",
      .numbered = true,
  };
  MOEFLUX_ASSERT(format == ReplyFormat::DeepSeek || format == ReplyFormat::DeepSeekFenced ||
                 format == ReplyFormat::Kimi);
  return format == ReplyFormat::Kimi ? kKimi : kDeepSeek;
}

CallMarkers call_markers(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::Plain:
      break;
    case ReplyFormat::Hermes:
      return {{std::string(kToolCallBegin)}, {std::string(kToolCallEnd)}};
    case ReplyFormat::QwenXml:
    case ReplyFormat::DeepSeekXml: {
      const TaggedMarkup& markup = tagged_markup(format);
      return {{std::string(markup.block_begin), std::string(markup.function_begin)},
              {std::string(markup.block_end)}};
    }
    case ReplyFormat::DeepSeek:
    case ReplyFormat::DeepSeekFenced:
    case ReplyFormat::Kimi: {
      const MarkedMarkup& markup = marked_markup(format);
      return {{std::string(markup.section_begin), std::string(markup.call_begin)},
              {std::string(markup.section_end), std::string(markup.call_end)}};
    }
  }
  return {};
}

namespace {

CallShape tagged_shape(ReplyFormat format) {
  const TaggedMarkup& markup = tagged_markup(format);
  return {.block_begin = fmt::format("{}\n", markup.block_begin),
          .before_name = std::string(markup.function_begin),
          .after_name = fmt::format("{}\n", markup.function_open),
          .after_arguments = std::string(markup.function_end),
          .between = "\n",
          .block_end = fmt::format("\n{}", markup.block_end),
          .calls_share_block = format == ReplyFormat::DeepSeekXml};
}

CallShape marked_shape(ReplyFormat format) {
  const MarkedMarkup& markup = marked_markup(format);
  CallShape shape{.block_begin = std::string(markup.section_begin),
                  .before_name = std::string(markup.call_begin),
                  .after_name = std::string(markup.separator),
                  .after_arguments = std::string(markup.call_end),
                  .between = "",
                  .block_end = std::string(markup.section_end),
                  .calls_share_block = true};
  if (format == ReplyFormat::DeepSeekFenced) {
    shape.before_name += fmt::format("function{}", markup.separator);
    shape.after_name = std::string("\n```json\n");
    shape.after_arguments = fmt::format("\n```{}", markup.call_end);
    shape.between = std::string("\n");
  }
  if (markup.numbered) {
    shape.before_name += "functions.";
    shape.after_name = fmt::format(":0{}", markup.separator);
  }
  return shape;
}

}  // namespace

CallShape call_shape(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::Plain:
      break;
    case ReplyFormat::Hermes:
      return {.block_begin = "<tool_call>\n",
              .before_name = "{\"name\": \"",
              .after_name = "\", \"arguments\": ",
              .after_arguments = "}",
              .between = "\n",
              .block_end = "\n</tool_call>",
              .calls_share_block = false};
    case ReplyFormat::QwenXml:
    case ReplyFormat::DeepSeekXml:
      return tagged_shape(format);
    case ReplyFormat::DeepSeek:
    case ReplyFormat::DeepSeekFenced:
    case ReplyFormat::Kimi:
      return marked_shape(format);
  }
  return {};
}

}  // namespace moeflux
