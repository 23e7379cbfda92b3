#include "text/replies/reply_calls.h"

#include <algorithm>

#include "base/error.h"
#include "text/replies/reply_gemma.h"
#include "text/replies/reply_json.h"

// DeepSeek's full-width bar and its low block, which stands for a space.
#define BAR "\xEF\xBD\x9C"
#define GAP "\xE2\x96\x81"

namespace moeflux {
namespace {

// ---- markers

CallShape tagged_shape(ReplyFormat format) {
  const TaggedMarkup& markup = tagged_markup(format);
  if (format == ReplyFormat::Glm || format == ReplyFormat::GlmCompact) {
    const std::string line_end = format == ReplyFormat::Glm ? "\n" : "";
    return {.block_begin = std::string(markup.block_begin),
            .before_name = {},
            .after_name = line_end,
            .after_arguments = {},
            .between = line_end,
            .block_end = std::string(markup.block_end),
            .calls_share_block = false};
  }
  return {.block_begin = fmt::format("{}\n", markup.block_begin),
          .before_name = std::string(markup.function_begin),
          .after_name = fmt::format("{}\n", markup.function_open),
          .after_arguments = std::string(markup.function_end),
          .between = "\n",
          .block_end = fmt::format("\n{}", markup.block_end),
          .calls_share_block = format != ReplyFormat::QwenXml};
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

// ---- readers

template <class Piece, class Member>
void extend(ReplyPieces& out, std::string_view text, Member member, Piece fresh) {
  if (text.empty()) return;
  if (out.empty() || !std::holds_alternative<Piece>(out.back())) out.emplace_back(std::move(fresh));
  (std::get<Piece>(out.back()).*member) += text;
}

}  // namespace

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
      .names_string = true,
  };
  static constexpr TaggedMarkup kDeepSeekV4 = [] {
    TaggedMarkup markup = kDeepSeek;
    markup.block_begin = "<" BAR "DSML" BAR "tool_calls>";
    markup.block_end = "</" BAR "DSML" BAR "tool_calls>";
    return markup;
  }();
  static constexpr TaggedMarkup kMiniMax{
      .block_begin = "<minimax:tool_call>",
      .block_end = "</minimax:tool_call>",
      .function_begin = "<invoke name=\"",
      .function_open = "\">",
      .function_end = "</invoke>",
      .parameter_begin = "<parameter name=\"",
      .parameter_open = "\">",
      .parameter_end = "</parameter>",
  };
  static constexpr TaggedMarkup kGlm{
      .block_begin = kToolCallBegin,
      .block_end = kToolCallEnd,
      .function_begin = {},
      .function_open = {},
      .function_end = {},
      .parameter_begin = "<arg_key>",
      .parameter_open = "</arg_key>",
      .parameter_end = "</arg_value>",
      .value_open = "<arg_value>",
  };
  switch (format) {
    case ReplyFormat::DeepSeekXml:
      return kDeepSeek;
    case ReplyFormat::DeepSeekV4:
      return kDeepSeekV4;
    case ReplyFormat::MiniMax:
      return kMiniMax;
    case ReplyFormat::Glm:
    case ReplyFormat::GlmCompact:
      return kGlm;
    default:
      MOEFLUX_ASSERT(format == ReplyFormat::QwenXml);
      return kQwen;
  }
}

bool is_tagged(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::QwenXml:
    case ReplyFormat::DeepSeekXml:
    case ReplyFormat::DeepSeekV4:
    case ReplyFormat::MiniMax:
    case ReplyFormat::Glm:
    case ReplyFormat::GlmCompact:
      return true;
    default:
      return false;
  }
}

bool is_marked(ReplyFormat format) {
  return format == ReplyFormat::DeepSeek || format == ReplyFormat::DeepSeekFenced ||
         format == ReplyFormat::Kimi;
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
  MOEFLUX_ASSERT(is_marked(format));
  return format == ReplyFormat::Kimi ? kKimi : kDeepSeek;
}

CallMarkers call_markers(ReplyFormat format) {
  if (is_tagged(format)) {
    const TaggedMarkup& markup = tagged_markup(format);
    CallMarkers markers{{std::string(markup.block_begin)}, {std::string(markup.block_end)}};
    if (!markup.function_begin.empty()) markers.openers.emplace_back(markup.function_begin);
    return markers;
  }
  if (is_marked(format)) {
    const MarkedMarkup& markup = marked_markup(format);
    return {{std::string(markup.section_begin), std::string(markup.call_begin)},
            {std::string(markup.section_end), std::string(markup.call_end)}};
  }
  if (format == ReplyFormat::Hermes)
    return {{std::string(kToolCallBegin)}, {std::string(kToolCallEnd)}};
  if (format == ReplyFormat::Gemma)
    return {{std::string(kGemmaCallBegin)}, {std::string(kGemmaCallEnd)}};
  return {};
}

CallShape call_shape(ReplyFormat format) {
  if (is_tagged(format)) return tagged_shape(format);
  if (is_marked(format)) return marked_shape(format);
  if (format != ReplyFormat::Hermes) return {};
  return {.block_begin = "<tool_call>\n",
          .before_name = "{\"name\": \"",
          .after_name = "\", \"arguments\": ",
          .after_arguments = "}",
          .between = "\n",
          .block_end = "\n</tool_call>",
          .calls_share_block = false};
}

Cursor::Match Cursor::match(std::string_view what) const {
  const std::string_view have = rest();
  if (have.starts_with(what)) return Match::Yes;
  return !at_end_ && what.starts_with(have) ? Match::NeedMore : Match::No;
}

void Cursor::skip_blanks() {
  while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
}

MarkerSearch find_marker(std::string_view text, const std::vector<std::string>& markers,
                         bool at_end) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    at = text.find('<', at);
    if (at == std::string_view::npos) break;
    const std::string_view rest = text.substr(at);
    bool partial = false;
    for (std::size_t i = 0; i < markers.size(); ++i) {
      if (rest.starts_with(markers[i])) return {at, i};
      partial = partial || markers[i].starts_with(rest);
    }
    if (partial && !at_end) return {at};
  }
  return {text.size()};
}

void add_content(ReplyPieces& out, std::string_view text) {
  extend(out, text, &ContentDelta::text, ContentDelta{});
}
void add_reasoning(ReplyPieces& out, std::string_view text) {
  extend(out, text, &ReasoningDelta::text, ReasoningDelta{});
}
void add_arguments(ReplyPieces& out, std::string_view json) {
  extend(out, json, &ToolCallArguments::json, ToolCallArguments{0, {}});
}

const Json& tool_function(const Json& tool) {
  static const Json kNone = Json::object();
  if (!tool.is_object()) return kNone;
  const auto function = tool.find("function");
  return function != tool.end() && function->is_object() ? *function : tool;
}

const Json* find_tool(const Json& tools, std::string_view name) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools) {
    const Json& function = tool_function(tool);
    const auto found = function.find("name");
    if (found != function.end() && found->is_string() &&
        found->get_ref<const std::string&>() == name) {
      return &function;
    }
  }
  return nullptr;
}

std::unique_ptr<CallReader> make_call_reader(ReplyFormat format, std::size_t opener,
                                             const Json& tools) {
  if (is_tagged(format)) return make_tagged_reader(format, opener, tools);
  if (is_marked(format)) return make_marked_reader(format, opener);
  if (format == ReplyFormat::Gemma) return make_gemma_reader();
  return make_hermes_reader();
}

CallStep SteppedReader::read(std::string_view text, bool at_end, ReplyPieces& out) {
  Cursor cursor(text, at_end);
  for (;;) {
    const std::size_t before = cursor.at();
    const Move move = step(cursor, out);
    if (!announced_) n_unannounced_ += cursor.at() - before;
    if (!announced_ && n_unannounced_ > kMaxUnannounced) return {cursor.at(), CallState::NotACall};
    switch (move) {
      case Move::On:
        break;
      case Move::NeedMore:
        return {cursor.at(), CallState::More};
      case Move::NotACall:
        return {cursor.at(), CallState::NotACall};
      case Move::CallEnded:
        announced_ = false;
        n_unannounced_ = 0;
        return {cursor.at(), CallState::CallEnded};
      case Move::Done:
        return {cursor.at(), CallState::Done};
    }
  }
}

}  // namespace moeflux
