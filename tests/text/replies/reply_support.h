// Runs replies through parsers, for tests: cut in many ways, with one result.
#pragma once

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "support/random.h"
#include "text/replies/reply_parser.h"

namespace moeflux::test {

// DeepSeek's markers, their bars and gaps written as ASCII in the tests.
inline std::string ds(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 3) {
    text.replace(at, 1, "\xEF\xBD\x9C");
  }
  for (std::size_t at = 0; (at = text.find('~', at)) != std::string::npos; at += 3) {
    text.replace(at, 1, "\xE2\x96\x81");
  }
  return text;
}

inline Json reply_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters": {
      "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
      "exact": {"type": "boolean"}, "where": {"type": "object"}, "tags": {"type": "array"},
      "note": {"type": ["string", "null"]}, "unit": {"enum": ["C", "F"]},
      "limit": {"anyOf": [{"type": "number"}, {"type": "string"}]},
      "ref": {"$ref": "#/$defs/count"}}, "$defs": {"count": {"type": "integer"}}}}},
      {"type": "function", "function": {"name": "now"}}])");
}

// A reply in one line: [thought] content {name args} with ! for calls that are not complete. The
// parts stand in the order in which they came.
inline std::string show(const ReplyPieces& pieces) {
  std::string text;
  bool in_thought = false;
  const auto leave = [&] {
    if (in_thought) text += ']';
    in_thought = false;
  };
  for (const ReplyPiece& piece : pieces) {
    if (const auto* thought = std::get_if<ReasoningDelta>(&piece)) {
      if (!in_thought) text += '[';
      in_thought = true;
      text += thought->text;
      continue;
    }
    leave();
    if (const auto* said = std::get_if<ContentDelta>(&piece)) text += said->text;
    if (const auto* begin = std::get_if<ToolCallBegin>(&piece)) {
      text += "{" + std::to_string(begin->index) + " " + begin->name + " ";
    }
    if (const auto* arguments = std::get_if<ToolCallArguments>(&piece)) text += arguments->json;
    if (const auto* end = std::get_if<ToolCallEnd>(&piece)) text += end->complete ? "}" : "!}";
  }
  leave();
  return text;
}

inline void append(ReplyPieces& to, const ReplyPieces& from) {
  to.insert(to.end(), from.begin(), from.end());
}

inline ReplyPieces parse_cut(ReplyFormat format, const ReplyOptions& options, std::string_view text,
                             std::size_t size, Random* random) {
  const auto parser = make_reply_parser(format, options);
  ReplyPieces pieces;
  while (!text.empty()) {
    const auto n = random ? static_cast<std::size_t>(random->integer(1, 12)) : size;
    append(pieces, parser->feed(text.substr(0, n)));
    text.remove_prefix(std::min(n, text.size()));
  }
  append(pieces, parser->finish());
  return pieces;
}

// The reply, which must be the same for all ways of cutting the text.
inline std::string parse(ReplyFormat format, const ReplyOptions& options, std::string_view text) {
  const std::string whole = show(parse_cut(format, options, text, text.size() + 1, nullptr));
  for (const std::size_t size : {1u, 2u, 3u, 7u}) {
    EXPECT_EQ(show(parse_cut(format, options, text, size, nullptr)), whole) << "by " << size;
  }
  for (std::size_t i = 1; i < text.size(); ++i) {  // in two, after every byte
    const auto parser = make_reply_parser(format, options);
    ReplyPieces pieces = parser->feed(text.substr(0, i));
    append(pieces, parser->feed(text.substr(i)));
    append(pieces, parser->finish());
    EXPECT_EQ(show(pieces), whole) << "after " << i;
  }
  Random random(text.size());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(show(parse_cut(format, options, text, 0, &random)), whole) << "random " << i;
  }
  return whole;
}

inline std::string with_tools(ReplyFormat format, std::string_view text,
                              bool opens_thought = false) {
  ReplyOptions options;
  options.tools = reply_tools();
  options.opens_thought = opens_thought;
  return parse(format, options, text);
}

}  // namespace moeflux::test
