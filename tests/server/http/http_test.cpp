#include "server/http/http.h"

#include <gtest/gtest.h>

namespace moeflux::test {
namespace {

TEST(HttpTest, TargetsAreTakenApart) {
  HttpRequest request;
  split_target("/v1/models/a%2Fb+c?x=1&y=a+b%20c&flag&=z", request);
  EXPECT_EQ(request.path, "/v1/models/a/b+c");
  EXPECT_EQ(request.query, (std::map<std::string, std::string>{
                               {"x", "1"}, {"y", "a b c"}, {"flag", ""}, {"", "z"}}));
  HttpRequest absolute;
  split_target("http://localhost:9099/health", absolute);
  EXPECT_EQ(absolute.path, "/health");
  HttpRequest odd;
  split_target("/a%zz%4", odd);
  EXPECT_EQ(odd.path, "/a%zz%4");
}

TEST(HttpTest, HeadersAreFoundByLowerCaseName) {
  const HttpRequest request{.method = "GET", .path = "/", .headers = {{"x-api-key", "k"}}};
  EXPECT_EQ(request.header("x-api-key"), "k");
  EXPECT_EQ(request.header("origin"), "");
}

TEST(HttpTest, ErrorsOfTheEngineHaveAStatus) {
  const auto status = [](Errc code) { return to_http_error(Error(code, "why")).status(); };
  EXPECT_EQ(status(Errc::BadInput), 400);
  EXPECT_EQ(status(Errc::Unsupported), 501);
  EXPECT_EQ(status(Errc::NotFound), 404);
  EXPECT_EQ(status(Errc::LimitExceeded), 429);
  EXPECT_EQ(status(Errc::Cancelled), 503);
  EXPECT_EQ(status(Errc::Io), 500);
  EXPECT_EQ(to_http_error(Error(Errc::LimitExceeded, "why")).headers(),
            (HttpHeaders{{"Retry-After", "5"}}));
  EXPECT_STREQ(to_http_error(Error(Errc::Io, "why")).what(), "why");
}

}  // namespace
}  // namespace moeflux::test
