#include "server/http/http.h"

#include <gtest/gtest.h>

#include "server/echo_server.h"

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

// ---- requests whose end is said in more than one way, or in a way we do not know: refused, and
// nothing after them is ever taken for a second request

constexpr int kRounds = 200;

struct Case {
  const char* version;
  const char* headers;
  int status;
};

constexpr const char* kHost = "Host: a\r\n";

const Case kRefused[] = {
    {"1.1", "Transfer-Encoding: gzip\r\n", 501},
    {"1.1", "Transfer-Encoding: identity\r\n", 501},
    {"1.1", "Transfer-Encoding: gzip, chunked\r\n", 501},
    {"1.1", "Transfer-Encoding: chunked, gzip\r\n", 501},
    {"1.1", "Transfer-Encoding: xchunked\r\n", 501},
    {"1.1", "Transfer-Encoding: chunked;q=1\r\n", 501},
    {"1.1", "Transfer-Encoding: \"chunked\"\r\n", 501},
    {"1.1", "Transfer-Encoding:\r\n", 501},
    {"1.1", "Transfer-Encoding: ,chunked\r\n", 501},
    {"1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501},
    {"1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400},
    {"1.1", "Transfer-Encoding: chunked, chunked\r\n", 400},
    {"1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
    {"1.1",
     "Transfer-Encoding: \x0b"
     "chunked\r\n",
     400},
    {"1.1", "Transfer-Encoding : chunked\r\n", 400},
    {"1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
    {"1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
    {"1.1", "Content-Length: 5\r\nTransfer-Encoding: identity\r\n", 400},
    {"1.0", "Transfer-Encoding: chunked\r\n", 400},
    {"1.0", "Transfer-Encoding: identity\r\n", 400},
    {"1.1", "Content-Length: 5\r\nContent-Length: 6\r\n", 400},
    {"1.1", "Content-Length: 5, 6\r\n", 400},
    {"1.1", "Content-Length: +5\r\n", 400},
    {"1.1", "Content-Length: 0x5\r\n", 400},
    {"1.1", "Host: b\r\n", 400},  // a second one
};

TEST(HttpFramingTest, NothingFollowsARequestWhoseEndIsNotClear) {
  EchoServer server;
  for (const Case& each : kRefused) {
    for (int round = 0; round < kRounds; ++round) {
      HttpClient client(server.port());
      client.send(std::string("POST /first HTTP/") + each.version + "\r\n" + kHost + each.headers +
                  "\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n");
      ASSERT_EQ(client.read().status, each.status) << each.version << " " << each.headers;
      ASSERT_EQ(client.read().status, 0) << "a second answer: " << each.headers;
    }
  }
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpFramingTest, ChunksInAnySpelling) {
  EchoServer server;
  for (const char* header : {"Transfer-Encoding: chunked", "transfer-encoding:Chunked",
                             "TRANSFER-ENCODING: \t CHUNKED \t"}) {
    HttpClient client(server.port());
    for (int round = 0; round < kRounds; ++round) {
      client.send(std::string("POST /c HTTP/1.1\r\nHost: a\r\n") + header +
                  "\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
      ASSERT_EQ(client.read().body, "POST /c 5") << header;
    }
  }
}

TEST(HttpFramingTest, HostIsDemandedByHttp11) {
  EchoServer server;
  HttpClient missing(server.port());
  missing.send("GET /x HTTP/1.1\r\n\r\n");
  const ClientResponse refused = missing.read();
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("Host"), std::string::npos) << refused.body;
  EXPECT_TRUE(missing.wait_for_close());
  HttpClient old(server.port());
  old.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read().status, 200);
  HttpClient two(server.port());
  two.send("GET /x HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n");
  EXPECT_EQ(two.read().status, 400);
}

TEST(HttpFramingTest, ErrorsNameTheCoding) {
  const auto error = check_framing({{"host", "a"}, {"transfer-encoding", "br"}}, true);
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(),
               "the Transfer-Encoding \"br\" is not known; send \"chunked\" or a Content-Length");
  EXPECT_FALSE(check_framing({{"host", "a"}, {"content-length", "5"}}, true));
}

}  // namespace
}  // namespace moeflux::test
