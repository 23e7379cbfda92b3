// Errors in the words of each dialect. Errors before a route is known have the form of the path
// that was asked for.
#include "server/dialects/errors.h"

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

TEST(AnthropicErrorsTest, StatusAndTypeGoTogether) {
  const auto answer = [](int status) {
    const HttpResponse response = anthropic_error(HttpError(status, "any", "why"));
    const Json body = parse_json(response.body, "test");
    EXPECT_EQ(body.at("type"), "error");
    EXPECT_EQ(body.at("error").at("message"), "why");
    EXPECT_EQ(response.headers, (HttpHeaders{{"request-id", body.at("request_id")}}));
    return std::to_string(response.status) + " " + body["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(answer(400), "400 invalid_request_error");
  EXPECT_EQ(answer(401), "401 authentication_error");
  EXPECT_EQ(answer(403), "403 permission_error");
  EXPECT_EQ(answer(404), "404 not_found_error");
  EXPECT_EQ(answer(413), "413 request_too_large");
  EXPECT_EQ(answer(415), "415 invalid_request_error");
  EXPECT_EQ(answer(429), "429 rate_limit_error");
  EXPECT_EQ(answer(500), "500 api_error");
  EXPECT_EQ(answer(501), "400 invalid_request_error");
  EXPECT_EQ(answer(503), "529 overloaded_error");
}

TEST(AnthropicErrorsTest, PromptsThatAreTooLongAreWordedForAgents) {
  const HttpError error = HttpError(400, "exceed_context_size_error", "any")
                              .with_number("n_prompt_tokens", 900)
                              .with_number("n_ctx", 512);
  EXPECT_EQ(anthropic_error_json(error, "req_1"),
            (Json{{"type", "error"},
                  {"error",
                   {{"type", "invalid_request_error"},
                    {"message",
                     "prompt is too long: 900 tokens > 512 maximum; shorten it, or start the "
                     "server with a larger --ctx-size"}}},
                  {"request_id", "req_1"}}));
}

}  // namespace
}  // namespace moeflux::test
