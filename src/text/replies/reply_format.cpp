#include "text/replies/reply_format.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

constexpr std::array kFormatsWithCalls = {ReplyFormat::QwenXml, ReplyFormat::Hermes,
                                          ReplyFormat::DeepSeek, ReplyFormat::DeepSeekXml,
                                          ReplyFormat::Kimi};
constexpr std::string_view kRule = "probe_rule";

Json probe_arguments() {
  return Json{{"place", "probe place"}, {"count", 3}};
}

bool reads_probe_call(ReplyFormat format, std::string_view text) {
  ReplyOptions options;
  options.tools = probe_tools();
  const Reply reply = parse_reply(format, options, text);
  if (reply.calls.size() != 1 || reply.calls[0].name != "probe_tool") return false;
  return Json::parse(reply.calls[0].arguments, nullptr, false) == probe_arguments();
}

std::optional<ReplyFormat> format_of_call(const ChatTemplate& chat, Json content) {
  ChatRequest request;
  request.messages = probe_call(std::move(content), probe_arguments(), "probe_result");
  request.tools = probe_tools();
  const std::optional<MarkedText> rendered = chat.probe(request);
  if (!rendered) return std::nullopt;
  // What the template says about calls in general comes before the question.
  const std::size_t question = rendered->text.rfind(kProbeQuestion);
  if (question == std::string::npos) return std::nullopt;
  const std::string_view answer = std::string_view(rendered->text).substr(question);
  for (const ReplyFormat format : kFormatsWithCalls) {
    if (!reads_probe_call(format, answer)) continue;
    const bool fenced = answer.find("```json") != std::string_view::npos;
    return format == ReplyFormat::DeepSeek && fenced ? ReplyFormat::DeepSeekFenced : format;
  }
  return std::nullopt;
}

// A template that cannot show calls may still describe how they are to be written.
ReplyFormat format_of_description(const ChatTemplate& chat) {
  ChatRequest request;
  request.messages = Json::array({probe_message("user", kProbeQuestion)});
  request.tools = probe_tools();
  const std::optional<MarkedText> rendered = chat.probe(request);
  if (!rendered) return ReplyFormat::Plain;
  const auto says = [&](std::string_view what) {
    return rendered->text.find(what) != std::string::npos;
  };
  if (says(tagged_markup(ReplyFormat::QwenXml).function_begin)) return ReplyFormat::QwenXml;
  if (says(kToolCallBegin)) return ReplyFormat::Hermes;
  if (says(tagged_markup(ReplyFormat::DeepSeekXml).block_begin)) return ReplyFormat::DeepSeekXml;
  if (says(marked_markup(ReplyFormat::DeepSeek).call_begin)) return ReplyFormat::DeepSeek;
  if (says(marked_markup(ReplyFormat::Kimi).call_begin)) return ReplyFormat::Kimi;
  return ReplyFormat::Plain;
}

bool takes_late_system(const ChatTemplate& chat) {
  ChatRequest request;
  request.messages =
      Json::array({probe_message("user", kProbeQuestion), probe_message("assistant", "answer"),
                   probe_message("system", kRule), probe_message("user", kProbeQuestion)});
  const std::optional<MarkedText> rendered = chat.probe(request);
  return rendered && rendered->text.find(kRule) != std::string::npos;
}

std::optional<MarkedText> prompt(const ChatTemplate& chat, std::optional<bool> thinking) {
  ChatRequest request;
  request.messages = Json::array({probe_message("user", kProbeQuestion)});
  if (thinking) request.extra = Json{{"enable_thinking", *thinking}, {"thinking", *thinking}};
  return chat.probe(request);
}

void find_thinking(const ChatTemplate& chat, ReplyProfile& profile) {
  const std::optional<MarkedText> as_it_is = prompt(chat, std::nullopt);
  const std::optional<MarkedText> on = prompt(chat, true);
  const std::optional<MarkedText> off = prompt(chat, false);
  for (const auto* one : {&as_it_is, &on, &off}) {
    if (*one && (*one)->text.find(kThoughtBegin) != std::string::npos) profile.thinks = true;
  }
  profile.opens_thought = as_it_is && prompt_opens_thought(*as_it_is);
  profile.can_switch_off = off && on && !prompt_opens_thought(*off) && off->text != on->text;
}

}  // namespace

ReplyProfile detect_reply_profile(const ChatTemplate& chat) {
  ReplyProfile profile;
  profile.forms = chat.forms();
  std::optional<ReplyFormat> format = format_of_call(chat, "");
  if (!format) {
    format = format_of_call(chat, nullptr);
    profile.null_content = format.has_value();
  }
  profile.format = format ? *format : format_of_description(chat);
  profile.late_system = takes_late_system(chat);
  find_thinking(chat, profile);
  return profile;
}

std::string_view to_string(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::Plain:
      return "plain";
    case ReplyFormat::Hermes:
      return "hermes";
    case ReplyFormat::QwenXml:
      return "qwen_xml";
    case ReplyFormat::DeepSeek:
      return "deepseek";
    case ReplyFormat::DeepSeekFenced:
      return "deepseek_fenced";
    case ReplyFormat::DeepSeekXml:
      return "deepseek_xml";
    case ReplyFormat::Kimi:
      return "kimi";
  }
  return "?";
}

std::vector<TokenId> special_marker_tokens(ReplyFormat format, const Tokenizer& tokenizer) {
  const CallShape shape = call_shape(format);
  std::string markup =
      fmt::format("{} {} {} {} {} {} {}", kThoughtBegin, kThoughtEnd, shape.block_begin,
                  shape.before_name, shape.after_name, shape.after_arguments, shape.block_end);
  if (format == ReplyFormat::DeepSeekXml) markup += tagged_markup(format).parameter_end;
  std::vector<TokenId> tokens;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.special && markup.find(token.content) != std::string::npos) {
      tokens.push_back(token.id);
    }
  }
  return tokens;
}

bool prompt_opens_thought(const MarkedText& prompt) {
  std::size_t end = prompt.text.size();
  while (end > 0 && is_blank(prompt.text[end - 1])) --end;
  if (!std::string_view(prompt.text).substr(0, end).ends_with(kThoughtBegin)) return false;
  const std::size_t begin = end - kThoughtBegin.size();
  return std::none_of(prompt.data.begin(), prompt.data.end(), [&](const MarkedText::Range& data) {
    return data.begin < end && data.end > begin;
  });
}

}  // namespace moeflux
