// The markers of the reply formats, for those who read them and those who force them.
#pragma once

#include <string>
#include <string_view>

#include "text/replies/reply_parser.h"

namespace moeflux {

inline constexpr std::string_view kThoughtBegin = "<think>";
inline constexpr std::string_view kThoughtEnd = "</think>";

// Hermes: one JSON object between these two.
inline constexpr std::string_view kToolCallBegin = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";

// Calls whose parameters have tags of their own:
//   block_begin (function_begin NAME function_open (parameter_begin KEY parameter_open value
//   parameter_end)* function_end)* block_end
struct TaggedMarkup {
  std::string_view block_begin, block_end;
  std::string_view function_begin, function_open, function_end;
  std::string_view parameter_begin, parameter_open, parameter_end;
  bool lines;         // a value stands on lines of its own
  bool names_string;  // string="true" or "false" in the tag says what a value is
};
const TaggedMarkup& tagged_markup(ReplyFormat format);

// Calls of a name and JSON arguments with markers around and between:
//   section_begin (call_begin NAME separator arguments call_end)* section_end
// V3 of DeepSeek writes call_begin "function" separator NAME "\n```json\n" arguments "\n```".
struct MarkedMarkup {
  std::string_view section_begin, section_end;
  std::string_view call_begin, separator, call_end;
  bool numbered;  // NAME is written as functions.NAME:INDEX
};
const MarkedMarkup& marked_markup(ReplyFormat format);

// How templates write calls, blanks included: what a model is used to, and is made to write.
struct CallShape {
  std::string block_begin;
  std::string before_name, after_name, after_arguments;
  std::string between;  // of two calls of a block, or of two blocks
  std::string block_end;
  bool calls_share_block = false;
};
CallShape call_shape(ReplyFormat format);

}  // namespace moeflux
