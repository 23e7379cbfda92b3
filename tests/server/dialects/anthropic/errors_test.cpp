#include "server/dialects/anthropic/errors.h"

#include <gtest/gtest.h>

namespace moeflux::test {
namespace {

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
