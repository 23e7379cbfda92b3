// Which reply format a chat template has taught its model, and what it understands of a history.
//
// Found by probing: the template writes a call into a rendered chat, and the format whose parser
// reads the same call back is the one. So templates never seen before work.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/chat/chat.h"
#include "text/chat/marked_text.h"
#include "text/replies/reply_parser.h"

namespace moeflux {

class Tokenizer;

struct ReplyProfile {
  ReplyFormat format = ReplyFormat::Plain;
  MessageForms forms = {};
  bool null_content = false;        // calls are only shown when the content beside them is null
  bool late_system = true;          // takes system messages after the first
  bool one_call = false;            // shows one call of a message only
  bool named_ids = false;           // writes the id for the name: functions.NAME:INDEX
  bool needs_descriptions = false;  // refuses tools without
  std::string thought_field = "reasoning_content";  // of a message, where thoughts are read
  bool thought_and_text = true;                     // takes both beside a call
  bool thinks = false;                              // knows thoughts at all
  bool opens_thought = false;   // its prompts end inside of a thought unless told otherwise
  bool can_switch_off = false;  // enable_thinking = false keeps the model from thinking
};

// A few renderings, each with a bound on its steps; do it once per template.
ReplyProfile detect_reply_profile(const ChatTemplate& chat);

// "qwen_xml", for reports.
std::string_view to_string(ReplyFormat format);

// Special tokens that are part of the format's markers. Text to be parsed must contain them, though
// special tokens are otherwise left out of text. None where the markers are ordinary added tokens,
// as in the tokenizers of Qwen. Plain has those of thoughts.
std::vector<TokenId> special_marker_tokens(ReplyFormat format, const Tokenizer& tokenizer);

// For a reply whose calls nobody looks for: Plain, unless thoughts have markers of their own.
ReplyFormat format_without_calls(ReplyFormat format);

// Brings enable_thinking and reasoning_effort among a template's variables to what its model knows:
// gpt-oss has the efforts low, medium and high and cannot be told not to think.
void adapt_thinking_variables(ReplyFormat format, Json& variables);

// Of the reply to a rendered prompt: a format with thoughts of its own form, or Plain.
ReplyFormat format_of_prompt(const MarkedText& prompt);

// Whether a rendered prompt ends inside of a thought that the template, not the user, has opened.
bool prompt_opens_thought(const MarkedText& prompt);

}  // namespace moeflux
