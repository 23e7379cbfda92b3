#include <gtest/gtest.h>

#include "server/server_app.h"

namespace moeflux::test {
namespace {

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    for (const auto& [method, pattern] :
         {std::pair("GET", "/v1/models"), std::pair("GET", "/v1/models/{model}"),
          std::pair("POST", "/v1/models"), std::pair("POST", "/tokenize")})
      router_.add({.method = method, .pattern = pattern, .handler = {}, .error_form = {}});
  }
  std::string find(const std::string& method, const std::string& path) {
    request_ = {.method = method, .path = path};
    try {
      const HttpRoute& route = router_.find(request_);
      return route.method + " " + route.pattern;
    } catch (const HttpError& error) {
      for (const auto& [name, value] : error.headers()) allowed_ = value;
      return std::to_string(error.status());
    }
  }
  HttpRouter router_;
  HttpRequest request_;
  std::string allowed_;
};

TEST_F(RouterTest, PathsAndMethodsFindTheirRoute) {
  EXPECT_EQ(find("GET", "/v1/models"), "GET /v1/models");
  EXPECT_EQ(find("POST", "/v1/models"), "POST /v1/models");
  EXPECT_EQ(find("HEAD", "/v1/models"), "GET /v1/models");
}

TEST_F(RouterTest, TheLastPieceMayBeAParameter) {
  EXPECT_EQ(find("GET", "/v1/models/org/name"), "GET /v1/models/{model}");
  EXPECT_EQ(request_.parameters.at("model"), "org/name");
  EXPECT_EQ(find("GET", "/v1/models/"), "404");
}

TEST_F(RouterTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(find("GET", "/v2"), "404");
  EXPECT_EQ(find("DELETE", "/v1/models"), "405");
  EXPECT_EQ(allowed_, "GET, POST");
}

}  // namespace
}  // namespace moeflux::test
