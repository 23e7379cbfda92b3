// A JSON schema as a whole: its shape checked, its references led to places inside of it.
//
// References are resolved as the standard says: against the nearest $id (draft 4: id), to anchors,
// and to JSON pointers from there. What remains in the document is {"$ref": "#/a/place/in/it"} from
// its root. A reference to a document that is not here stands for any value, and is noted.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/grammar/schema_keywords.h"

namespace moeflux {

inline constexpr std::size_t kMaxSchemaBytes = 256u << 10;

class SchemaDocument {
 public:
  // Throws BadInput for what is no schema, LimitExceeded for what is too large.
  SchemaDocument(const Json& schema, std::string origin);

  const Json& root() const { return root_; }
  const std::string& origin() const { return origin_; }

  // `reference` as it stands in the document.
  const Json& at(const std::string& reference) const;

  // Paths of references to what is not here, and of those that depend on who refers.
  const std::vector<std::string>& unresolved() const { return unresolved_; }

 private:
  std::vector<std::string> unresolved_;
  std::string origin_;
  const Json root_;
};

}  // namespace moeflux
