// Takes a reply of a model apart while it is being written: what the model thinks, what it says and
// which tools it calls.
//
// Text goes in as it comes, cut anywhere; what comes out, joined, does not depend on the cuts.
// Content and reasoning are passed on as soon as they can no longer be a prefix of a marker,
// the arguments of a call while they are written, as JSON. Nothing but markers and the blank space
// that templates put around them is lost: what looks like a call and is none comes out as content.
//
// The text must contain the markers. See docs/REPLIES.md for the formats, and reply_format.h for
// finding out which one a template has taught its model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace moeflux {

struct ContentDelta {
  std::string text;
};
struct ReasoningDelta {
  std::string text;
};
struct ToolCallBegin {
  int index;  // 0, 1, ... in this reply
  std::string name;
};
struct ToolCallArguments {
  int index;
  std::string json;  // fragments; joined, a JSON object when the call is complete
};
struct ToolCallEnd {
  int index;
  bool complete;  // false: the reply ended or went wrong inside of the arguments
};
// Calls do not overlap: after the begin of one, nothing else comes until its end.
using ReplyPiece =
    std::variant<ContentDelta, ReasoningDelta, ToolCallBegin, ToolCallArguments, ToolCallEnd>;
using ReplyPieces = std::vector<ReplyPiece>;

enum class ReplyFormat {
  Plain,           // no calls
  Hermes,          // <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  QwenXml,         // <tool_call><function=NAME><parameter=KEY>value</parameter></function> ...
  DeepSeek,        // markers around a name and JSON (V3.1)
  DeepSeekFenced,  // the same with ```json around the JSON (V3, R1); read like DeepSeek
  DeepSeekXml,     // <DSML invoke name="NAME"><DSML parameter name="KEY" string="true">, with bars
  DeepSeekV4,      // the same in a block of another name
  Kimi,            // <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}
  Glm,             // <tool_call>NAME, and lines of <arg_key>KEY</arg_key>, <arg_value>value ...
  GlmCompact,      // the same without line ends; read like Glm
  MiniMax,         // <minimax:tool_call><invoke name="NAME"><parameter name="KEY">value ...
  Gemma,           // <|tool_call>call:NAME{KEY:value}<tool_call|>, texts between control tokens
  Harmony,         // messages in channels; calls are messages to functions.NAME
};

struct ReplyOptions {
  bool opens_thought = false;  // the prompt ends inside of a thought
  bool reasoning = true;       // false: thoughts are content, markers included
  // The tools of the request, in OpenAI's form. With none (null or []), no calls are looked for.
  Json tools = nullptr;
  // False: a call comes out when it has ended, and one that the model got wrong comes out as
  // content. For replies and dialects that do not stream calls.
  bool stream_arguments = true;
};

enum class ReplyEnd {
  Complete,  // by the model
  Cut,       // by a limit or a stop string: half a call or half a marker at the end is no content
};

class ReplyParser {
 public:
  virtual ~ReplyParser() = default;

  virtual ReplyPieces feed(std::string_view text) = 0;
  virtual ReplyPieces finish(ReplyEnd end = ReplyEnd::Complete) = 0;  // once
};

std::unique_ptr<ReplyParser> make_reply_parser(ReplyFormat format, const ReplyOptions& options);

// A whole reply.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
  bool complete = true;
};
struct Reply {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> calls;

  void add(const ReplyPieces& pieces);
};
Reply parse_reply(ReplyFormat format, const ReplyOptions& options, std::string_view text);

}  // namespace moeflux
