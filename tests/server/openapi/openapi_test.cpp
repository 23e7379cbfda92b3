// The OpenAPI document against the routes, and its examples against the server: what it says of a
// request is taken, and what it says of an answer is so.
#include <set>

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

class OpenApiTest : public testing::Test {
 protected:
  OpenApiTest() : document_(server_.get("/openapi.json").json()) {}

  const Json& resolve(const Json& schema) const {
    if (!schema.contains("$ref")) return schema;
    const std::string name = schema["$ref"];
    return resolve(document_.at(Json::json_pointer(name.substr(1))));
  }

  static bool has_type(const Json& value, const std::string& type) {
    return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
           (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
           (type == "null" && value.is_null()) || (type == "number" && value.is_number()) ||
           (type == "integer" && value.is_number_integer());
  }

  // Why the value is not what the schema says; "" where it is. As much of JSON Schema as the
  // document uses.
  std::string mismatch(const Json& value, const Json& unresolved, const std::string& at) const {
    const Json& schema = resolve(unresolved);
    if (schema.contains("anyOf")) {
      std::string why;
      for (const Json& each : schema["anyOf"]) {
        const std::string one = mismatch(value, each, at);
        if (one.empty()) return "";
        why += one + "; ";
      }
      return why;
    }
    if (schema.contains("type")) {
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& type) {
        return has_type(value, type.get<std::string>());
      });
      if (!fits) return at + " is " + dump_json(value).substr(0, 60);
    }
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      return at + " is " + dump_json(value).substr(0, 60);
    if (value.is_object()) {
      for (const Json& name : schema.value("required", Json::array())) {
        if (!value.contains(name.get<std::string>()))
          return at + " has no " + name.get<std::string>();
      }
      const Json properties = schema.value("properties", Json::object());
      for (const auto& [name, member] : properties.items()) {
        if (!value.contains(name)) continue;
        if (std::string why = mismatch(value[name], member, at + "." + name); !why.empty())
          return why;
      }
    }
    if (value.is_array() && schema.contains("items")) {
      for (const Json& each : value) {
        if (std::string why = mismatch(each, schema["items"], at + "[]"); !why.empty()) return why;
      }
    }
    return "";
  }

  DemoServer server_;
  const Json document_;
};

void collect_refs(const Json& value, std::set<std::string>& refs) {
  if (value.is_object() && value.contains("$ref")) refs.insert(value["$ref"].get<std::string>());
  if (!value.is_structured()) return;
  for (const Json& each : value) collect_refs(each, refs);
}

std::set<std::string> routes_of(const ServerApp& app) {
  std::set<std::string> routes;
  for (const HttpRoute& route : app.router().routes())
    routes.insert(route.method + " " + route.pattern);
  return routes;
}

TEST_F(OpenApiTest, EveryRouteIsInItAndTheOtherWayRound) {
  std::set<std::string> described;
  for (const auto& [path, operations] : document_["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string upper = method;
      std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
      described.insert(upper + " " + path);
    }
  }
  EXPECT_EQ(described, routes_of(ServerApp({})));
}

TEST_F(OpenApiTest, WhatNeedsNoKeySaysSo) {
  const ServerApp app({});
  for (const HttpRoute& route : app.router().routes()) {
    std::string method = route.method;
    std::transform(method.begin(), method.end(), method.begin(), ::tolower);
    const Json& operation = document_["paths"][route.pattern][method];
    EXPECT_EQ(operation.value("security", Json()) == Json::array(), !route.needs_key)
        << route.pattern;
  }
}

TEST_F(OpenApiTest, IsWhole) {
  EXPECT_EQ(document_["openapi"], "3.1.0");
  EXPECT_EQ(document_["info"]["version"], "test");
  std::set<std::string> refs, ids;
  collect_refs(document_, refs);
  for (const std::string& ref : refs)
    EXPECT_TRUE(document_.contains(Json::json_pointer(ref.substr(1)))) << ref;
  for (const auto& [name, schema] : document_["components"]["schemas"].items())
    EXPECT_TRUE(refs.contains("#/components/schemas/" + name)) << name << " is not used";
  for (const auto& [path, operations] : document_["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      EXPECT_TRUE(ids.insert(operation["operationId"].get<std::string>()).second) << path;
      EXPECT_TRUE(operation.contains("responses")) << path;
    }
  }
}

TEST_F(OpenApiTest, ExamplesAreAnsweredAsItSays) {
  int n_examples = 0;
  for (const auto& [path, operations] : document_["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (!operation.contains("requestBody")) continue;
      const Json& body = operation["requestBody"]["content"]["application/json"];
      if (!body.contains("example")) continue;
      ++n_examples;
      EXPECT_EQ(mismatch(body["example"], body["schema"], path + " request"), "");
      const ClientResponse response = server_.post(path, body["example"]);
      ASSERT_EQ(response.status, 200) << path << " " << response.body;
      const Json& said = operation["responses"]["200"]["content"]["application/json"];
      EXPECT_EQ(mismatch(response.json(), said["schema"], path), "");
    }
  }
  EXPECT_GE(n_examples, 18);
}

TEST_F(OpenApiTest, QuestionsAreAnsweredAsItSays) {
  for (const std::string path : {"/v1/models", "/v1/models/demo", "/props", "/slots", "/health",
                                 "/api/tags", "/api/ps", "/api/version"}) {
    const ClientResponse response = server_.get(path);
    ASSERT_EQ(response.status, 200) << path;
    const std::string pattern = path == "/v1/models/demo" ? "/v1/models/{model}" : path;
    const Json& said = document_["paths"][pattern]["get"]["responses"]["200"]["content"];
    EXPECT_EQ(mismatch(response.json(), said["application/json"]["schema"], path), "");
  }
}

// Each dialect has its own form, and each says which.
TEST_F(OpenApiTest, ErrorsAreAsItSays) {
  for (const auto& [path, operations] : document_["paths"].items()) {
    if (!operations.contains("post") || path.find('{') != std::string::npos) continue;
    const Json& operation = operations["post"];
    const ClientResponse response = server_.post(path, Json::array());
    EXPECT_GE(response.status, 400) << path;
    const Json& said = operation["responses"]["default"]["content"]["application/json"];
    EXPECT_EQ(mismatch(response.json(), said["schema"], path), "");
  }
}

}  // namespace
}  // namespace moeflux::test
