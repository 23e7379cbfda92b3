// The forms in which a template can read the messages of API clients.
//
// Clients write content as text or as parts, and arguments of calls as text or as an object;
// templates are written for one form or for several. Each template is tried out once to learn which
// it reads. A template's own render() converts nothing: see docs/REPLIES.md for who does.
#pragma once

#include <map>
#include <string>

#include "base/json.h"

namespace moeflux {

class ChatTemplate;

// What the content of a message has to be.
enum class ContentForm {
  AsGiven,  // both are read
  String,
  Parts,
};
// What the arguments of a call have to be.
enum class ArgumentForm { Object, String };

struct MessageForms {
  std::map<std::string, ContentForm, std::less<>> content = {};  // by role; else as given
  ArgumentForm arguments = ArgumentForm::Object;

  // Brings a message with parts of text only, and arguments that are objects, into these forms.
  void apply(Json& message) const;
};

// The texts of parts, a line between them: what vLLM and llama.cpp make of parts for templates that
// read strings.
std::string joined_parts(const Json& parts);

// A few renderings, each with a bound on its steps.
MessageForms find_message_forms(const ChatTemplate& chat);

}  // namespace moeflux
