#include "text/replies/reply_calls.h"

#include <algorithm>

#include "text/replies/reply_json.h"

namespace moeflux {

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

namespace {

template <class Piece, class Member>
void extend(ReplyPieces& out, std::string_view text, Member member, Piece fresh) {
  if (text.empty()) return;
  if (out.empty() || !std::holds_alternative<Piece>(out.back())) out.emplace_back(std::move(fresh));
  (std::get<Piece>(out.back()).*member) += text;
}

}  // namespace

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
  switch (format) {
    case ReplyFormat::Plain:
      break;
    case ReplyFormat::Hermes:
      return make_hermes_reader();
    case ReplyFormat::QwenXml:
    case ReplyFormat::DeepSeekXml:
      return make_tagged_reader(format, opener, tools);
    case ReplyFormat::DeepSeek:
    case ReplyFormat::DeepSeekFenced:
    case ReplyFormat::Kimi:
      return make_marked_reader(format, opener);
  }
  return nullptr;
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
