#include "server/dialects/responses/tools.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace moeflux {
namespace {

// What clients call the namespace of functions that are in none.
constexpr std::string_view kNoSpace = "functions";

class ToolReader {
 public:
  explicit ToolReader(const Json& allowed) : allowed_(allowed) { tools_.functions = Json::array(); }

  void read(const Json& tools, const std::string& space, const std::string& where) {
    for (std::size_t i = 0; i < tools.size(); ++i) {
      const std::string at = fmt::format("{}[{}]", where, i);
      if (!tools[i].is_object()) throw bad_request(at + " must be an object", "tools");
      const RequestFields members(tools[i], at + ".");
      const std::string type = members.string("type").value_or("function");
      if (type == "function")
        add(tools[i], members, space, at);
      else if (type == "namespace" && space.empty())
        read_space(members, at);
    }
  }

  ResponsesTools finish() { return std::move(tools_); }

 private:
  void read_space(const RequestFields& members, const std::string& at) {
    const auto name = members.string("name");
    if (!name || name->empty()) members.refuse("name", "is missing");
    const Json* tools = members.array("tools");
    if (tools != nullptr) read(*tools, *name == kNoSpace ? "" : *name, at + ".tools");
  }

  void add(const Json& tool, const RequestFields& members, const std::string& space,
           const std::string& at) {
    const Json* nested = members.object("function");  // as /v1/chat/completions has it
    const RequestFields given(nested == nullptr ? tool : *nested, at + ".");
    Json function = Json::object();
    for (const char* key : {"name", "description", "parameters"}) {
      if (const Json* value = given.find(key)) function[key] = *value;
    }
    const Json name = function.value("name", Json());
    if (!allowed_.is_null() && std::find(allowed_.begin(), allowed_.end(), name) == allowed_.end())
      return;
    if (!space.empty() && name.is_string()) {
      function["name"] = free_name(space, name.get<std::string>());
      tools_.names[function["name"].get<std::string>()] = {space, name.get<std::string>()};
    }
    if (name.is_string()) taken_.insert(function["name"].get<std::string>());
    tools_.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }

  // Its own, unless another function has that.
  std::string free_name(const std::string& space, const std::string& name) const {
    if (!taken_.contains(name)) return name;
    return space + (space.ends_with("__") ? "" : "__") + name;
  }

  const Json& allowed_;
  ResponsesTools tools_;
  std::set<std::string> taken_;
};

}  // namespace

std::string ResponsesTools::shown(const std::string& space, const std::string& name) const {
  if (space.empty() || space == kNoSpace) return name;
  for (const auto& [shown, original] : names) {
    if (original.space == space && original.name == name) return shown;
  }
  return name;
}

ResponsesTools read_responses_tools(const RequestFields& fields, const Json& allowed) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return {};
  ToolReader reader(allowed);
  reader.read(*tools, "", "tools");
  return reader.finish();
}

}  // namespace moeflux
