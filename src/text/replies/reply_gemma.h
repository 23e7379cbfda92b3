// The calls of Gemma 4: call:NAME{key:value,...} between two markers. It is JSON but for keys
// without quotes and for texts, which stand between two control tokens and are written as they are.
#pragma once

#include <memory>
#include <string_view>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_tools.h"

namespace moeflux {

inline constexpr std::string_view kGemmaCallBegin = "<|tool_call>";
inline constexpr std::string_view kGemmaCallEnd = "<tool_call|>";
inline constexpr std::string_view kGemmaCallName = "call:";
inline constexpr std::string_view kGemmaQuote = "<|\"|>";
inline constexpr std::string_view kGemmaTurn = "<|turn>model";  // how prompts end
inline constexpr std::string_view kGemmaThoughtBegin = "<|channel>thought";
inline constexpr std::string_view kGemmaThoughtEnd = "<channel|>";

std::unique_ptr<CallReader> make_gemma_reader();

// See tool_grammar(). Keys of a demanded call come in the order of the alphabet, as templates write
// them.
ToolGrammar gemma_tool_grammar(const Json& tools, const ToolGrammarOptions& options);

}  // namespace moeflux
