// The messages of a request, from the forms that clients write to the one that templates read.
#pragma once

#include "base/json.h"
#include "text/replies/reply_format.h"

namespace moeflux {

// What clients may send: roles system, developer, user, assistant, tool, function; content as text
// or text parts, or none beside calls; arguments of calls as text or object; `reasoning_content`,
// `reasoning` or `thinking`; the old `function_call`.
//
// What comes back: roles system, user, assistant, tool; content as text or an array of {"type":
// "text", "text"}; tool_calls as {"id", "type", "function": {"name", "arguments"}}; both in the
// forms of the profile; thoughts in its thought_field; one call a message where it has one_call;
// tool messages with the "name" of the call they answer.
// The first system messages become one. Throws BadInput naming message and field.
Json normalize_messages(const Json& messages, const ReplyProfile& profile = {});

// A string, or an array of {"type": "text", "text"}, out of what a client may send. `where` is the
// field's name in errors: "messages[3].content".
Json normalize_content(const Json& content, const std::string& where);

// The tools of a request, checked: OpenAI's form, or {"name", "parameters"} without its wrapper.
// Null when there are none.
Json normalize_tools(const Json& tools);

// What normalize_tools() gave, as the template of the profile takes it.
Json tools_for_template(Json tools, const ReplyProfile& profile);

}  // namespace moeflux
