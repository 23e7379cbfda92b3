#include "text/grammar/schema_document.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

// ---- addresses (RFC 3986, as far as schemas use them)

struct Address {
  std::string before;  // "http://host", "urn:example", "" when relative
  std::string path;
  std::string fragment;  // without #
  bool has_fragment = false;
  bool has_scheme = false;
};

Address parse_address(std::string_view text) {
  Address out;
  if (const std::size_t hash = text.find('#'); hash != std::string_view::npos) {
    out.has_fragment = true;
    out.fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
  }
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos && colon > 0 &&
      text.substr(0, colon).find_first_of("/?") == std::string_view::npos) {
    out.has_scheme = true;
    std::size_t end = colon + 1;
    if (text.substr(end).starts_with("//")) {
      end = std::min(text.find('/', end + 2), text.size());
    } else {
      end = text.size();  // urn:..., tag:...
    }
    out.before = text.substr(0, end);
    text = text.substr(end);
  }
  out.path = text;
  return out;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  const bool absolute = path.starts_with('/');
  bool ends_open = false;
  for (std::size_t at = absolute ? 1 : 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    ends_open = part == "." || part == "..";
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
    at = end + 1;
  }
  if (ends_open) parts.push_back("");
  std::string out = absolute ? "/" : "";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += '/';
    out += parts[i];
  }
  return out;
}

// Without the fragment.
std::string resolved_address(const std::string& base, const Address& reference) {
  if (reference.has_scheme) return reference.before + without_dots(reference.path);
  const Address from = parse_address(base);
  if (reference.path.empty()) return from.before + from.path;
  if (reference.path.starts_with('/')) return from.before + without_dots(reference.path);
  const std::size_t slash = from.path.rfind('/');
  const std::string folder = slash == std::string::npos
                                 ? std::string(from.before.empty() ? "" : "/")
                                 : from.path.substr(0, slash + 1);
  return from.before + without_dots(folder + reference.path);
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  const auto digit = [](char c) {
    const std::size_t at = std::string_view("0123456789abcdef0123456789ABCDEF").find(c);
    return at == std::string_view::npos ? -1 : static_cast<int>(at % 16);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// ---- the document

constexpr int kMaxDocumentDepth = 100;
constexpr const char* kAlone = "$refAlone";  // beside it nothing counts, until draft 7

// From a JSON pointer; null when it leads nowhere. `path`: the pointer as we write it.
template <class AnyJson>
AnyJson* follow(AnyJson& root, std::string_view pointer, std::string* path = nullptr) {
  AnyJson* at = &root;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    std::string step;
    for (std::size_t i = 0; i < end; ++i) {
      const bool escape = pointer[i] == '~' && i + 1 < end;
      step += !escape ? pointer[i] : pointer[++i] == '1' ? '/' : '~';
    }
    pointer = pointer.substr(end);
    if (path != nullptr) *path += "/" + pointer_step(step);
    if (at->is_object()) {
      const auto member = at->find(step);
      if (member == at->end()) return nullptr;
      at = &*member;
    } else if (at->is_array()) {
      const bool number = !step.empty() && step.size() < 7 &&
                          step.find_first_not_of("0123456789") == std::string::npos;
      const std::size_t i = number ? std::stoul(step) : at->size();
      if (i >= at->size()) return nullptr;
      at = &(*at)[i];
    } else {
      return nullptr;
    }
  }
  return at;
}

class Preparation {
 public:
  Preparation(Json& root, const std::string& origin, std::vector<std::string>& unresolved)
      : root_(root), origin_(origin), unresolved_(unresolved) {}

  void run() {
    resources_[""] = "";
    visit(root_, "", {"", "", is_old(root_, false)}, 0);
    // Led to places that no keyword makes a schema, more references come up.
    for (std::size_t i = 0; i < references_.size(); ++i) resolve(references_[i]);
  }

 private:
  struct Resource {
    std::string base;     // its address
    std::string pointer;  // to it
    bool old = false;     // draft 7 or older
  };
  struct Reference {
    std::string pointer;  // to the schema
    Resource in;
    bool dynamic;
  };

  SchemaPlace place(const std::string& pointer) const { return {origin_, pointer}; }

  static bool is_old(const Json& schema, bool otherwise) {
    if (!schema.is_object()) return otherwise;
    const auto draft = schema.find("$schema");
    if (draft == schema.end() || !draft->is_string()) return otherwise;
    const auto& text = draft->get_ref<const std::string&>();
    for (const char* name : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"}) {
      if (text.find(name) != std::string::npos) return true;
    }
    return false;
  }

  void anchor(const Resource& in, const std::string& name, const std::string& pointer) {
    resources_.try_emplace(in.base + "#" + name, pointer);
  }

  // Its address, if it has one of its own.
  void enter(const Json& schema, const std::string& pointer, Resource& in) {
    in.old = is_old(schema, in.old);
    const bool has_alone = in.old && schema.contains("$ref");
    for (const char* keyword : {"$id", "id"}) {
      const auto id = schema.find(keyword);
      if (id == schema.end() || !id->is_string() || has_alone) continue;
      if (keyword == std::string_view("id") && !in.old) continue;
      const Address address = parse_address(id->get_ref<const std::string&>());
      if (address.before.empty() && address.path.empty()) {
        if (in.old) anchor(in, address.fragment, pointer);
        continue;
      }
      in.base = resolved_address(in.base, address);
      in.pointer = pointer;
      resources_[in.base] = pointer;
      if (!address.fragment.empty()) anchor(in, address.fragment, pointer);
    }
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const auto name = schema.find(keyword);
      if (name == schema.end() || !name->is_string()) continue;
      anchor(in, name->get_ref<const std::string&>(), pointer);
      if (keyword == std::string_view("$dynamicAnchor")) {
        dynamic_[name->get_ref<const std::string&>()].push_back(pointer);
      }
    }
  }

  void visit(Json& schema, const std::string& pointer, Resource in, int depth) {
    if (depth > kMaxDocumentDepth) {
      fail(Errc::LimitExceeded, "{}: nested deeper than {}", place(pointer).text(),
           kMaxDocumentDepth);
    }
    if (!seen_.insert(pointer).second || schema.is_boolean()) return;
    if (!schema.is_object()) place(pointer).bad("a schema must be an object, true or false");
    enter(schema, pointer, in);
    schema.erase(kAlone);
    for (const auto& [name, value] : schema.items()) check_keyword(name, value, place(pointer));
    bool refers = false;
    for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
      if (!schema.contains(keyword)) continue;
      if (!refers) references_.push_back({pointer, in, keyword == std::string_view("$dynamicRef")});
      if (keyword != std::string_view("$ref")) {
        if (!refers) schema["$ref"] = schema[keyword];
        schema.erase(keyword);
      }
      refers = true;
    }
    if (refers && in.old) schema[kAlone] = true;
    for (auto& [name, value] : schema.items()) visit_inside(name, value, pointer, in, depth);
  }

  void visit_inside(const std::string& name, Json& value, const std::string& pointer,
                    const Resource& in, int depth) {
    const SchemaHolder holder = schemas_in(name);
    if (holder == SchemaHolder::None) return;
    const std::string here = pointer + "/" + pointer_step(name);
    const bool is_list = value.is_array();
    if (holder == SchemaHolder::One || (holder == SchemaHolder::OneOrList && !is_list)) {
      visit(value, here, in, depth + 1);
    } else if (is_list) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        visit(value[i], here + "/" + std::to_string(i), in, depth + 1);
      }
    } else {
      for (auto& [member, inner] : value.items()) {
        const std::string at = here + "/" + pointer_step(member);
        if (holder == SchemaHolder::MapOrLists && (inner.is_array() || inner.is_string())) continue;
        visit(inner, at, in, depth + 1);
      }
    }
  }

  // The fragment as a place of the document; nothing when there is no such.
  std::optional<std::string> target_of(const std::string& text, const Resource& in) {
    const Address address = parse_address(text);
    const std::string base = resolved_address(in.base, address);
    const auto resource = resources_.find(base);
    if (resource == resources_.end()) return std::nullopt;
    const std::string fragment = percent_decoded(address.fragment);
    if (fragment.empty()) return resource->second;
    if (fragment.starts_with('/')) return resource->second + fragment;
    const auto anchored = resources_.find(base + "#" + fragment);
    if (anchored == resources_.end()) return "?";
    return anchored->second;
  }

  void resolve(const Reference reference) {
    Json& schema = *follow(root_, reference.pointer);
    const std::string text = schema["$ref"].get<std::string>();
    std::optional<std::string> target = target_of(text, reference.in);
    const SchemaPlace here = place(reference.pointer);
    if (!target) {
      unresolved_.push_back(reference.pointer + "/$ref");
      schema.erase("$ref");
      schema.erase(kAlone);
      return;
    }
    if (reference.dynamic) {
      const std::size_t hash = text.find('#');
      const auto named = dynamic_.find(text.substr(hash == std::string::npos ? 0 : hash + 1));
      if (named != dynamic_.end() && named->second.size() > 1) {
        // Which one is meant depends on the way that led here: the first one is the outermost.
        target = named->second[0];
        unresolved_.push_back(reference.pointer + "/$dynamicRef");
      }
    }
    std::string path;
    Json* const found = *target == "?" ? nullptr : follow(root_, *target, &path);
    if (found == nullptr) here.bad(fmt::format("$ref \"{}\" leads nowhere", text));
    if (!found->is_object() && !found->is_boolean()) {
      here.bad(fmt::format("$ref \"{}\" leads to what is no schema", text));
    }
    schema["$ref"] = "#" + path;
    visit(*found, path, reference.in, 0);
  }

  Json& root_;
  const std::string& origin_;
  std::vector<std::string>& unresolved_;
  std::map<std::string, std::string> resources_;  // address, or address#anchor -> pointer
  std::map<std::string, std::vector<std::string>> dynamic_;  // anchors -> pointers
  std::set<std::string> seen_;
  std::vector<Reference> references_;
};

Json prepared(Json schema, const std::string& origin, std::vector<std::string>& unresolved) {
  if (const std::size_t size = dump_json(schema).size(); size > kMaxSchemaBytes) {
    fail(Errc::LimitExceeded, "{}: {} bytes, more than the limit of {}", origin, size,
         kMaxSchemaBytes);
  }
  Preparation(schema, origin, unresolved).run();
  return schema;
}

}  // namespace

SchemaDocument::SchemaDocument(const Json& schema, std::string origin)
    : origin_(std::move(origin)), root_(prepared(schema, origin_, unresolved_)) {}

const Json& SchemaDocument::at(const std::string& reference) const {
  const Json* found = follow(root_, std::string_view(reference).substr(1));
  if (found == nullptr) fail(Errc::BadInput, "{}: $ref \"{}\" leads nowhere", origin_, reference);
  return *found;
}

}  // namespace moeflux
