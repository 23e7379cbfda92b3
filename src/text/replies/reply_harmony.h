// Harmony, the format of gpt-oss. A reply is a list of messages:
//
//   <|start|>ROLE[ to=RECIPIENT]<|channel|>CHANNEL[ to=RECIPIENT][
//   CONSTRAINT]<|message|>BODY<|end|>
//
// The prompt ends with <|start|>assistant. The channel "analysis" is thought, "final" and messages
// to nobody in "commentary" are content, a message to functions.NAME in any channel is a call whose
// body is JSON. What goes to somebody else (tools that nobody has offered) is dropped. <|call|> and
// <|return|> end the last message and the reply.
#pragma once

#include <memory>
#include <string_view>

#include "text/replies/reply_parser.h"
#include "text/replies/reply_tools.h"

namespace moeflux {

inline constexpr std::string_view kHarmonyStart = "<|start|>";
inline constexpr std::string_view kHarmonyChannel = "<|channel|>";
inline constexpr std::string_view kHarmonyConstrain = "<|constrain|>";
inline constexpr std::string_view kHarmonyMessage = "<|message|>";
inline constexpr std::string_view kHarmonyEnd = "<|end|>";
inline constexpr std::string_view kHarmonyCall = "<|call|>";
inline constexpr std::string_view kHarmonyReturn = "<|return|>";
inline constexpr std::string_view kHarmonyThought = "<|channel|>analysis<|message|>";
inline constexpr std::string_view kHarmonyAnswer = "<|channel|>final<|message|>";
inline constexpr std::string_view kHarmonyTurn = "<|start|>assistant";  // how prompts end
inline constexpr std::string_view kHarmonyToFunction = " to=functions.";

// Messages of one kind are joined with an empty line between two.
std::unique_ptr<ReplyParser> make_harmony_parser(const ReplyOptions& options);

// See tool_grammar(). A demanded call may follow a thought, which is part of the grammar. Auto
// starts after kHarmonyToFunction, which means a call only in the head of a message.
ToolGrammar harmony_tool_grammar(const Json& tools, const ToolGrammarOptions& options);

// An answer of the form of the rule `value`, perhaps after a thought: GBNF without that rule.
std::string harmony_answer_grammar();

}  // namespace moeflux
