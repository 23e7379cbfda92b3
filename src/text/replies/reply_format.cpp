#include "text/replies/reply_format.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_gemma.h"
#include "text/replies/reply_harmony.h"
#include "text/replies/reply_json.h"
#include "text/replies/reply_thinking.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

constexpr std::array kFormatsWithCalls = {
    ReplyFormat::QwenXml,  ReplyFormat::Hermes,      ReplyFormat::Glm,
    ReplyFormat::DeepSeek, ReplyFormat::DeepSeekXml, ReplyFormat::Kimi,
    ReplyFormat::MiniMax,  ReplyFormat::Gemma,       ReplyFormat::Harmony};
constexpr std::string_view kRule = "probe_rule";
constexpr std::string_view kThought = "probe_thought";

Json probe_arguments() {
  return Json{{"place", "probe place"}, {"count", 3}};
}

bool reads_probe_call(ReplyFormat format, std::string_view text) {
  ReplyOptions options;
  options.tools = probe_tools();
  const Reply reply = parse_reply(format, options, text);
  if (reply.calls.size() != 1 || reply.calls[0].name != "probe_tool") return false;
  const Json arguments = Json::parse(reply.calls[0].arguments, nullptr, false);
  const Json wanted = probe_arguments();  // in any order
  return arguments.is_object() && arguments.size() == wanted.size() &&
         arguments.value("place", Json()) == wanted["place"] &&
         arguments.value("count", Json()) == wanted["count"];
}

// Formats that are read alike and written in more than one way.
ReplyFormat variant_of(ReplyFormat format, std::string_view text) {
  const auto has = [&](std::string_view what) { return text.find(what) != std::string_view::npos; };
  switch (format) {
    case ReplyFormat::DeepSeek:
      return has("```json") ? ReplyFormat::DeepSeekFenced : format;
    case ReplyFormat::DeepSeekXml:
      return has(tagged_markup(ReplyFormat::DeepSeekV4).block_begin) ? ReplyFormat::DeepSeekV4
                                                                     : format;
    case ReplyFormat::Glm:
      return has("</arg_key><arg_value>") ? ReplyFormat::GlmCompact : format;
    default:
      return format;
  }
}

// `named_id`: the id of the call is functions.NAME:INDEX, as Kimi gives them.
std::optional<ReplyFormat> format_of_call(const ChatTemplate& chat, Json content,
                                          bool named_id = false) {
  ChatRequest request;
  request.messages = probe_call(std::move(content), probe_arguments(), "probe_result");
  request.tools = probe_tools();
  if (named_id) {
    request.messages[1]["tool_calls"][0]["id"] = "functions.probe_tool:0";
    request.messages[2]["tool_call_id"] = "functions.probe_tool:0";
  }
  const std::optional<MarkedText> rendered = chat.probe(request);
  if (!rendered) return std::nullopt;
  // What the template says about calls in general comes before the question.
  const std::size_t question = rendered->text.rfind(kProbeQuestion);
  if (question == std::string::npos) return std::nullopt;
  const std::string_view answer = std::string_view(rendered->text).substr(question);
  for (const ReplyFormat format : kFormatsWithCalls) {
    if (reads_probe_call(format, answer)) return variant_of(format, answer);
  }
  return std::nullopt;
}

std::string_view without_blanks_at_end(std::string_view text) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Blanks may follow it. What a user wrote is no markup.
bool ends_with_markup(const MarkedText& prompt, std::string_view marker) {
  const std::string_view text = without_blanks_at_end(prompt.text);
  if (!text.ends_with(marker)) return false;
  const std::size_t end = text.size(), begin = end - marker.size();
  return std::none_of(prompt.data.begin(), prompt.data.end(), [&](const MarkedText::Range& data) {
    return data.begin < end && data.end > begin;
  });
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
  if (const ReplyFormat format = format_of_prompt(*rendered); format != ReplyFormat::Plain)
    return format;
  for (const ReplyFormat format :
       {ReplyFormat::MiniMax, ReplyFormat::DeepSeekV4, ReplyFormat::DeepSeekXml}) {
    if (says(tagged_markup(format).block_begin)) return format;
  }
  if (says(tagged_markup(ReplyFormat::Glm).parameter_begin))
    return variant_of(ReplyFormat::Glm, rendered->text);
  if (says(tagged_markup(ReplyFormat::QwenXml).function_begin)) return ReplyFormat::QwenXml;
  if (says(kToolCallBegin)) return ReplyFormat::Hermes;
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

// Whether the template shows `text` when it is given these messages.
bool shows(const ChatTemplate& chat, Json messages, std::string_view text) {
  const std::optional<MarkedText> rendered =
      chat.probe({.messages = std::move(messages), .tools = probe_tools()});
  return rendered && rendered->text.find(text) != std::string::npos;
}

// What it makes of calls and of the thoughts beside them.
void find_call_forms(const ChatTemplate& chat, ReplyProfile& profile) {
  const Json content = profile.null_content ? Json(nullptr) : Json("");
  const Json calls = probe_call(content, probe_arguments(), "probe_result");
  Json two = calls;
  Json second = two[1]["tool_calls"][0];
  second["id"] = "call00002";
  second["function"]["arguments"]["place"] = "second_place";
  two[1]["tool_calls"].push_back(std::move(second));
  Json result = two[2];
  result["tool_call_id"] = "call00002";
  two.push_back(std::move(result));
  Json tools = probe_tools();
  const auto takes_tools = [&] {
    return chat
        .probe({.messages = Json::array({probe_message("user", kProbeQuestion)}), .tools = tools})
        .has_value();
  };
  const bool takes_described = takes_tools();
  tools[0]["function"].erase("description");
  profile.needs_descriptions = takes_described && !takes_tools();

  profile.one_call = shows(chat, calls, "probe place") &&
                     !(shows(chat, two, "probe place") && shows(chat, two, "second_place"));

  for (const char* field : {"reasoning_content", "thinking", "reasoning"}) {
    Json thoughtful = calls;
    thoughtful[1][field] = kThought;
    if (!shows(chat, thoughtful, kThought)) continue;
    profile.thought_field = field;
    thoughtful[1]["content"] = "probe_text";
    profile.thought_and_text = shows(chat, std::move(thoughtful), "probe_text");
    return;
  }
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
    const ThoughtMarkers markers = thought_markers(profile.format);
    if (*one && (*one)->text.find(markers.begin) != std::string::npos) profile.thinks = true;
  }
  profile.thinks = profile.thinks || profile.format == ReplyFormat::Harmony;
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
  if (!format) {
    format = format_of_call(chat, "", /*named_id=*/true);
    profile.null_content = false;
    profile.named_ids = format.has_value();
  }
  profile.format = format ? *format : format_of_description(chat);
  // Kimi's models name their calls so, and templates repeat the id with the result.
  if (profile.format == ReplyFormat::Kimi) profile.named_ids = true;
  find_call_forms(chat, profile);
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
    case ReplyFormat::DeepSeekV4:
      return "deepseek_v4";
    case ReplyFormat::Kimi:
      return "kimi";
    case ReplyFormat::Glm:
      return "glm";
    case ReplyFormat::GlmCompact:
      return "glm_compact";
    case ReplyFormat::MiniMax:
      return "minimax";
    case ReplyFormat::Gemma:
      return "gemma";
    case ReplyFormat::Harmony:
      return "harmony";
  }
  return "?";
}

std::vector<TokenId> special_marker_tokens(ReplyFormat format, const Tokenizer& tokenizer) {
  const CallShape shape = call_shape(format);
  std::string markup =
      fmt::format("{} {} {} {} {} {} {}", kThoughtBegin, kThoughtEnd, shape.block_begin,
                  shape.before_name, shape.after_name, shape.after_arguments, shape.block_end);
  if (is_tagged(format)) {
    const TaggedMarkup& tags = tagged_markup(format);
    markup += fmt::format(" {} {} {} {}", tags.parameter_begin, tags.parameter_open,
                          tags.value_open, tags.parameter_end);
  } else if (format == ReplyFormat::Gemma) {
    markup = fmt::format("{} {} {} {} {}", kGemmaCallBegin, kGemmaCallEnd, kGemmaQuote,
                         kGemmaThoughtBegin, kGemmaThoughtEnd);
  } else if (format == ReplyFormat::Harmony) {
    markup = fmt::format("{} {} {} {} {}", kHarmonyStart, kHarmonyChannel, kHarmonyConstrain,
                         kHarmonyMessage, kHarmonyEnd);
  }
  std::vector<TokenId> tokens;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.special && markup.find(token.content) != std::string::npos) {
      tokens.push_back(token.id);
    }
  }
  return tokens;
}

ReplyFormat format_without_calls(ReplyFormat format) {
  const bool own_thoughts = format == ReplyFormat::Harmony || format == ReplyFormat::Gemma;
  return own_thoughts ? format : ReplyFormat::Plain;
}

void adapt_thinking_variables(ReplyFormat format, Json& variables) {
  if (format != ReplyFormat::Harmony) return;
  const auto is = [&](const char* name, const Json& value) {
    return variables.contains(name) && variables[name] == value;
  };
  Json& effort = variables["reasoning_effort"];
  if (effort.is_null() && is("enable_thinking", false)) effort = "low";
  if (effort == "none" || effort == "minimal") effort = "low";
  if (effort == "xhigh" || effort == "max") effort = "high";
  if (effort.is_null()) variables.erase("reasoning_effort");
}

ReplyFormat format_of_prompt(const MarkedText& prompt) {
  const auto ends_with = [&](std::string_view marker) { return ends_with_markup(prompt, marker); };
  if (ends_with(kHarmonyTurn) || ends_with(kHarmonyThought)) return ReplyFormat::Harmony;
  if (ends_with(kGemmaTurn) || ends_with(kGemmaThoughtBegin) || ends_with(kGemmaThoughtEnd))
    return ReplyFormat::Gemma;
  return ReplyFormat::Plain;
}

bool prompt_opens_thought(const MarkedText& prompt) {
  return ends_with_markup(prompt, kThoughtBegin) || ends_with_markup(prompt, kHarmonyThought) ||
         ends_with_markup(prompt, kGemmaThoughtBegin);
}

}  // namespace moeflux
