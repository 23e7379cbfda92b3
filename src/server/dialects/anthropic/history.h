// The system prompt and the messages of an Anthropic request, rewritten in the form that
// text/replies/reply_history.h reads.
//
// Results of tools become messages of their own, thoughts become reasoning_content, neighbours of
// one role become one message. What changes from request to request without meaning anything to a
// model is left out, so that the beginning of a conversation stays the same for the prefix store.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace moeflux {

// Reads `system` and `messages`. Throws HttpError 400 naming message, block and field.
Json read_anthropic_messages(const Json& body);

// Agents put a line about their billing first, whose checksum differs in every request.
std::string without_billing_lines(std::string_view text);

}  // namespace moeflux
