// Is a value valid under a JSON schema? For what a grammar does not keep, when a document is
// complete; and for the values of `enum`.
//
// Patterns are matched as languages (text_language.h), so that none takes long; those that are not
// understood there, and `format`, are not checked. Work is bounded: a check that would take too
// long is LimitExceeded.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "text/grammar/schema_document.h"
#include "text/grammar/text_language.h"

namespace moeflux {

class SchemaCheck {
 public:
  explicit SchemaCheck(const SchemaDocument& document) : document_(document) {}

  // Where in the value (a JSON pointer) which keyword is not kept: "/a/0: minimum". Nothing for a
  // valid value. `schema` is of the document, or refers to it.
  std::optional<std::string> violation(const Json& schema, const Json& value);

 private:
  struct Seen {  // parts of one value that were looked at
    std::set<std::string> names;
    std::set<std::size_t> items;
  };
  bool valid(const Json& schema, const Json& value, const std::string& at, Seen& seen);
  bool keyword_holds(const Json& own, const std::string& name, const Json& argument,
                     const Json& value, const std::string& at, Seen& seen);
  bool combination_holds(const Json& own, const std::string& name, const Json& argument,
                         const Json& value, const std::string& at, Seen& seen);
  bool array_holds(const Json& own, const std::string& name, const Json& argument,
                   const Json& value, const std::string& at, Seen& seen);
  bool object_holds(const Json& own, const std::string& name, const Json& argument,
                    const Json& value, const std::string& at, Seen& seen);
  bool matches(const std::string& pattern, const std::string& text, bool otherwise);
  bool fails(const std::string& at, const std::string& keyword);

  const SchemaDocument& document_;
  TextLanguages languages_;
  std::map<std::string, std::optional<LanguageId>> patterns_;
  std::optional<std::string> first_;  // the first violation of this look
  std::size_t work_ = 0;
  int depth_ = 0;
};

// For a schema that was not prepared.
std::optional<std::string> find_schema_violation(const Json& schema, const Json& value);

}  // namespace moeflux
