// Errors before a route is known have the form of the path that was asked for.
#include "server/dialects/error_forms.h"

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

enum class Dialect { OpenAi, Anthropic, Ollama };

Dialect dialect_of(const ClientResponse& response) {
  const Json body = response.json();
  if (body.at("error").is_string()) return Dialect::Ollama;
  EXPECT_FALSE(body.at("error").at("message").get<std::string>().empty());
  if (!body.contains("type")) return Dialect::OpenAi;
  EXPECT_EQ(body.at("type"), "error");
  EXPECT_EQ(body.at("request_id"), response.headers.at("request-id"));
  return Dialect::Anthropic;
}

struct Path {
  std::string path;
  Dialect dialect;
  int put;  // the status of PUT
};
const std::vector<Path> kPaths{{"/v1/messages", Dialect::Anthropic, 405},
                               {"/v1/messages/count_tokens", Dialect::Anthropic, 405},
                               {"/v1/messages/batches", Dialect::Anthropic, 404},
                               {"/api/chat", Dialect::Ollama, 405},
                               {"/api/nothing", Dialect::Ollama, 404},
                               {"/v1/chat/completions", Dialect::OpenAi, 405},
                               {"/v1/messagesfrom", Dialect::OpenAi, 404},
                               {"/apikeys", Dialect::OpenAi, 404}};

TEST(ErrorForms, GoByThePath) {
  for (const auto& [path, dialect, put] : kPaths) {
    const HttpResponse form = error_form_of(path)({404, "not_found_error", "no"});
    EXPECT_EQ(form.status, 404);
    const Json body = parse_json(form.body, "error");
    EXPECT_EQ(body.at("error").is_string(), dialect == Dialect::Ollama) << path;
    EXPECT_EQ(body.contains("type"), dialect == Dialect::Anthropic) << path;
  }
  EXPECT_EQ(status_text(529), "Overloaded");
}

class ErrorFormsTest : public testing::Test {
 protected:
  ErrorFormsTest()
      : server_({.limits = {.header_bytes = 4096,
                            .body_bytes = 1000,
                            .header = std::chrono::milliseconds(100),
                            .body = std::chrono::milliseconds(100)},
                 .loaded = false}) {}
  void expect(const std::string& request, const std::string& path, int status, Dialect dialect) {
    HttpClient client(server_.port());
    client.send(request);
    const ClientResponse response = client.read();
    EXPECT_EQ(response.status, status) << path << "\n" << response.body;
    EXPECT_EQ(dialect_of(response), dialect) << path << "\n" << response.body;
  }
  DemoServer server_;
};

TEST_F(ErrorFormsTest, FromTheConnectionAndTheRouter) {
  for (const auto& [path, dialect, put] : kPaths) {
    const std::string host = " HTTP/1.1\r\nHost: localhost\r\n";
    expect("PUT " + path + host + "Content-Length: 0\r\n\r\n", path, put, dialect);
    const std::string begin = "POST " + path + host;
    expect(begin + "Content-Length: 2000\r\n\r\n", path, 413, dialect);
    expect(begin + "X-Long: " + std::string(5000, 'x'), path, 431, dialect);
    expect(begin + "Content-Length: 10\r\n\r\nhalf", path, 408, dialect);
    expect(begin + "X-Never: ", path, 408, dialect);
    expect(begin + "Expect: tea\r\nContent-Length: 1\r\n\r\n", path, 417, dialect);
    expect("POST " + path + " HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n", path,
           403, dialect);
    if (put == 405) {
      expect(begin + "Content-Type: text/html\r\nContent-Length: 2\r\n\r\n{}", path, 415, dialect);
    }
  }
}

// Anthropic's clients know this status.
TEST_F(ErrorFormsTest, AnOverloadedServerSaysSo) {
  HttpClient client(server_.port());
  client.post("/v1/messages", "{}");
  EXPECT_EQ(client.read_until("\r\n"), "HTTP/1.1 529 Overloaded\r\n");
}

}  // namespace
}  // namespace moeflux::test
