// A schema as alternatives without alternatives in them: $ref, allOf, anyOf, oneOf, not, if and the
// dependent keywords are worked out, so that each branch says by itself which values it allows.
//
// A branch is a schema again, of the keywords of values only. What two parts of it say about the
// same thing stands side by side in its `allOf`, whose members are of these kinds: properties
// (with patternProperties and additionalProperties), items (with prefixItems), contains (with its
// counts), pattern, format, multipleOf, propertyNames, and `not` of pattern, enum or multipleOf.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/schema_document.h"
#include "text/grammar/text_language.h"

namespace moeflux {

// What unevaluatedProperties and unevaluatedItems do not apply to.
struct EvaluatedParts {
  std::set<std::string> names = {};
  std::vector<std::string> patterns = {};
  bool all_names = false;
  std::size_t n_items = 0;
  bool all_items = false;
  std::vector<Json> contains = {};  // items that are one of these

  void add(const EvaluatedParts& other);
};

struct SchemaBranch {
  Json flat = Json::object();
  EvaluatedParts evaluated = {};
};

// The keywords (as paths) that the grammar does not keep, each once.
using SchemaNotes = std::set<std::string>;

class SchemaBranches {
 public:
  SchemaBranches(const SchemaDocument& document, SchemaNotes& notes)
      : document_(document), notes_(notes) {}

  // None: no value. Where the work would not end, or branches would be too many, a keyword is left
  // out and noted. Throws BadInput for references in a circle, LimitExceeded.
  std::vector<SchemaBranch> of(const Json& schema, const SchemaPlace& place);

  // Do schemas of these branches exclude each other? False when that cannot be told.
  bool are_disjoint(const std::vector<SchemaBranch>& a, const std::vector<SchemaBranch>& b) {
    return joined(a, b).empty();
  }

  // What a branch says of the member `name`; false when it may not be there. Nothing when the
  // branch does not speak of it.
  std::optional<Json> member(const Json& flat, const std::string& name);

  // Does the pattern of patternProperties match? False, and noted, for one that is not understood.
  bool matches(const std::string& pattern, const std::string& name);
  // Nothing for one that is not understood.
  std::optional<LanguageId> language(const std::string& pattern);
  TextLanguages& languages() { return languages_; }

  void note(const SchemaPlace& place) { notes_.insert(place.path.empty() ? "/" : place.path); }

  // A schema for all that the schema refuses; nothing where no schema says it.
  // (schema_negation.cpp)
  std::optional<Json> negation(const Json& schema, int depth = 0);

 private:
  using Branches = std::vector<SchemaBranch>;

  Branches applied(const Json& own, const SchemaPlace& place);
  Branches joined(const Branches& a, const Branches& b);
  // `out` joined with what the keyword says; as it was, and noted, when that is too much.
  void join(Branches& out, const Branches& more, const SchemaPlace& keyword);
  Branches any_of(const Json& parts, const SchemaPlace& place);
  Branches one_of(const Json& parts, const SchemaPlace& place);
  Branches refused(const Json& schema, const SchemaPlace& place);
  Branches conditional(const Json& own, const SchemaPlace& place);
  void join_dependencies(Branches& out, const Json& own, const SchemaPlace& place);
  void apply_unevaluated(Branches& out, const Json& own);
  std::optional<Json> merged(const Json& a, const Json& b);  // (schema_merge.cpp)
  bool is_empty(const Json& flat);

  const SchemaDocument& document_;
  SchemaNotes& notes_;
  TextLanguages languages_;
  std::map<std::string, std::optional<LanguageId>> patterns_;
  std::set<std::string> open_;  // references being worked out
  std::size_t work_ = 0;
  int depth_ = 0, emptiness_depth_ = 0;
};

// Says one more thing in a branch, unless it is said already.
void put_beside(Json& flat, const Json& part);

// Parts of a branch: the members of its allOf with one of the keywords, and the branch itself when
// it has one.
std::vector<const Json*> layers(const Json& flat, std::initializer_list<const char*> keywords);
std::vector<const Json*> object_layers(const Json& flat);
std::vector<const Json*> array_layers(const Json& flat);

}  // namespace moeflux
