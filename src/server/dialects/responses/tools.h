// The tools of a request to /v1/responses. They may come in namespaces, one for each of a client's
// tool servers; calls then say which. A model sees plain functions.
#pragma once

#include <map>
#include <string>

#include "server/dialects/request_fields.h"

namespace moeflux {

struct ResponsesTools {
  struct Name {
    std::string space, name;
  };
  Json functions = nullptr;           // as /v1/chat/completions has them; null: none were given
  std::map<std::string, Name> names;  // of those in a namespace, by what the model calls them

  // What the model calls a function of a namespace; "": of none.
  std::string shown(const std::string& space, const std::string& name) const;
};

// Only functions can be called; what the hosts of other models run themselves is left out.
// `allowed` are the names that may be, or null for all. Throws HttpError 400.
ResponsesTools read_responses_tools(const RequestFields& fields, const Json& allowed);

}  // namespace moeflux
