// Who may ask, what is refused, and what can be asked about the server.
#include "server/server_app.h"

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

TEST(ServerKeyTest, KeysAreEqualOnlyWhenTheyAre) {
  EXPECT_TRUE(same_key("secret", "secret"));
  EXPECT_FALSE(same_key("secret", "secreT"));
  EXPECT_FALSE(same_key("secre", "secret"));
  EXPECT_FALSE(same_key("secretsecret", "secret"));
  EXPECT_FALSE(same_key("", "secret"));
}

TEST(ServerAppTest, BeforeTheModelIsLoadedEverythingSaysSo) {
  DemoServer server({.loaded = false});
  for (const char* path : {"/health", "/v1/models", "/props", "/metrics"}) {
    const ClientResponse response = server.get(path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(response.json().at("error").at("type"), "unavailable_error");
    EXPECT_EQ(response.headers.at("retry-after"), "5");
  }
  EXPECT_EQ(server.post("/v1/chat/completions", sum_question()).status, 503);
  server.load();
  EXPECT_EQ(server.get("/health").body, R"({"status":"ok"})");
}

TEST(ServerAppTest, KeysInBothHeaders) {
  DemoServer server({.app = {.model_id = "demo", .api_keys = {"one", "two"}}});
  EXPECT_EQ(server.get("/health").status, 200);
  const ClientResponse none = server.get("/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.json().at("error").at("code"), "invalid_api_key");
  EXPECT_EQ(none.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer two\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "authorization: bearer one\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "x-api-key: one\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer three\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Basic one\r\n").status, 401);
}

TEST(ServerAppTest, OtherOriginsNeedToBeAllowed) {
  DemoServer server(
      {.app = {.model_id = "demo", .cors_origins = {"http://a.example"}}, .loaded = false});
  HttpClient client(server.port());
  client.send(
      "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.example\r\n"
      "Access-Control-Request-Headers: x-api-key\r\n\r\n");
  const ClientResponse preflight = client.read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://a.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "x-api-key");
  const std::string evil = "Origin: http://evil.example\r\n";
  EXPECT_EQ(server.post("/v1/completions", "{}", evil).status, 403);
  EXPECT_FALSE(server.get("/health", evil).headers.contains("access-control-allow-origin"));
  const ClientResponse allowed =
      server.post("/v1/completions", "{}", "Origin: http://a.example\r\n");
  EXPECT_EQ(allowed.status, 503);
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "http://a.example");
  EXPECT_EQ(server.post("/v1/completions", "{}", "Origin: http://localhost\r\n").status, 503);
}

TEST(ServerAppTest, ForeignNamesForThisServerAreRefused) {
  DemoServer server({.loaded = false});
  const auto status = [&](const std::string& host) {
    HttpClient client(server.port());
    client.send("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.read().status;
  };
  EXPECT_EQ(status("evil.example"), 403);
  EXPECT_EQ(status("evil.example:80"), 403);
  EXPECT_EQ(status("localhost:9099"), 503);
  EXPECT_EQ(status("127.0.0.1:9099"), 503);
  EXPECT_EQ(status("[::1]:9099"), 503);
}

TEST(ServerAppTest, ErrorsAndWhatTheySay) {
  DemoServer server;
  struct Case {
    const char* path;
    const char* body;
    int status;
    const char* type;
    Json param;
  };
  const std::vector<Case> cases{
      {"/v1/nothing", "{}", 404, "not_found_error", nullptr},
      {"/v1/models", "{}", 405, "invalid_request_error", nullptr},
      {"/v1/chat/completions", "{", 400, "invalid_request_error", nullptr},
      {"/v1/chat/completions", "[]", 400, "invalid_request_error", nullptr},
      {"/v1/chat/completions", "{}", 400, "invalid_request_error", "messages"},
      {"/v1/chat/completions", R"({"messages": [{"role": "king", "content": "x"}]})", 400,
       "invalid_request_error", "messages"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": 5}]})", 400,
       "invalid_request_error", "messages"},
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "x"}], "temperature": -1})", 400,
       "invalid_request_error", "temperature"},
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})", 400,
       "invalid_request_error", "tool_choice"},
      {"/v1/completions", "{}", 400, "invalid_request_error", "prompt"},
      {"/v1/completions", R"({"prompt": ""})", 400, "invalid_request_error", "prompt"},
      {"/v1/completions", R"({"prompt": [1000000]})", 400, "invalid_request_error", nullptr},
      {"/tokenize", "{}", 400, "invalid_request_error", "content"},
      {"/detokenize", R"({"tokens": [-1]})", 400, "invalid_request_error", "tokens"},
  };
  for (const Case& each : cases) {
    const ClientResponse response = server.post(each.path, each.body);
    EXPECT_EQ(response.status, each.status) << each.path << each.body << response.body;
    const Json error = response.json().at("error");
    EXPECT_EQ(error.at("type"), each.type) << each.body;
    EXPECT_EQ(error.at("param"), each.param) << each.body << response.body;
    EXPECT_FALSE(error.at("message").get<std::string>().empty());
    EXPECT_TRUE(error.contains("code"));
  }
}

TEST(ServerAppTest, ALongPromptIsRefusedWithBothNumbers) {
  DemoServer server({.context = 64});
  std::string text;
  for (int i = 0; i < 200; ++i) text += "word ";
  const ClientResponse response = server.post("/v1/chat/completions", question(text));
  EXPECT_EQ(response.status, 400);
  const Json error = response.json().at("error");
  EXPECT_EQ(error.at("type"), "exceed_context_size_error");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("n_ctx"), 64);
  EXPECT_GT(error.at("n_prompt_tokens").get<int>(), 200);
}

TEST(ServerAppTest, AHugePromptIsRefusedBeforeItsTokensAreCounted) {
  DemoServer server({.context = 64});
  const std::string long_text(1 << 20, 'x');
  const ClientResponse response = server.post("/v1/chat/completions", question(long_text));
  EXPECT_EQ(response.status, 400);
  const Json error = response.json().at("error");
  EXPECT_EQ(error.at("type"), "exceed_context_size_error");
  EXPECT_NE(error.at("message").get<std::string>().find("at least"), std::string::npos);
  EXPECT_GT(error.at("n_prompt_tokens").get<int>(), 64);

  // The same for texts that no template renders.
  for (const Json& prompt : {Json(long_text), Json::array({"short", long_text}),
                             Json::array({Json::array({1, long_text})})}) {
    const ClientResponse refused = server.post("/v1/completions", {{"prompt", prompt}});
    EXPECT_EQ(refused.status, 400);
    EXPECT_NE(refused.body.find("at least"), std::string::npos) << refused.body;
  }
  const ClientResponse raw =
      server.post("/api/generate", {{"model", "demo"}, {"raw", true}, {"prompt", long_text}});
  EXPECT_EQ(raw.status, 400);
  EXPECT_NE(raw.body.find("at least"), std::string::npos) << raw.body;
}

TEST(ServerAppTest, ContentTypes) {
  DemoServer server({.loaded = false});
  const auto status = [&](const std::string& type) {
    HttpClient client(server.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + type +
                "Content-Length: 2\r\n\r\n{}");
    return client.read().status;
  };
  EXPECT_EQ(status("Content-Type: application/json; charset=utf-8\r\n"), 503);
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded\r\n"), 503);
  EXPECT_EQ(status(""), 503);
  EXPECT_EQ(status("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("Content-Type: multipart/form-data; boundary=x\r\n"), 415);
}

TEST(ServerAppTest, WhatCanBeAskedAboutTheModel) {
  DemoServer server;
  const Json model = server.get("/v1/models").json().at("data").at(0);
  EXPECT_EQ(model.at("id"), "demo");
  EXPECT_EQ(model.at("object"), "model");
  EXPECT_EQ(model.at("meta").at("n_ctx"), 512);
  EXPECT_GT(model.at("meta").at("n_params").get<std::int64_t>(), 1'000'000);
  EXPECT_EQ(server.get("/v1/models/demo").json(), model);
  EXPECT_EQ(server.get("/v1/models/other").status, 404);

  const Json props = server.get("/props").json();
  EXPECT_EQ(props.at("total_slots"), 2);
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx"), 512);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("top_k"), 20);
  EXPECT_EQ(props.at("moeflux").at("tool_calls"), "qwen_xml");
  EXPECT_NE(props.at("chat_template").get<std::string>().find("<|im_start|>"), std::string::npos);

  const Json slots = server.get("/slots").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots.at(0).at("is_processing"), false);

  HttpClient client(server.port());
  client.send(
      "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\n"
      "Host: localhost\r\n\r\n");
  const ClientResponse head = client.read_head();
  EXPECT_EQ(head.headers.at("content-length"), "15");
  EXPECT_EQ(client.read().body, R"({"status":"ok"})");  // on the same connection
}

TEST(ServerAppTest, TokensAndTemplates) {
  DemoServer server;
  const Json tokens = server.post("/tokenize", {{"content", "12 + 30"}}).json().at("tokens");
  EXPECT_EQ(tokens, (Json{16, 17, 420, 220, 18, 15}));
  EXPECT_EQ(server.post("/detokenize", {{"tokens", tokens}}).json().at("content"), "12 + 30");
  const Json pieces =
      server.post("/tokenize", {{"content", "12 +"}, {"with_pieces", true}}).json().at("tokens");
  EXPECT_EQ(pieces.at(2), (Json{{"id", 420}, {"piece", " +"}}));
  EXPECT_EQ(server.post("/tokenize", {{"content", "<|im_end|>"}}).json().at("tokens").size(), 1u);
  EXPECT_GT(server.post("/tokenize", {{"content", "<|im_end|>"}, {"parse_special", false}})
                .json()
                .at("tokens")
                .size(),
            1u);
  EXPECT_EQ(server.post("/apply-template", sum_question()).json().at("prompt"),
            "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\n");
}

TEST(ServerAppTest, MetricsCountWhatHappened) {
  DemoServer server;
  server.post("/v1/chat/completions", sum_question());
  const ClientResponse response = server.get("/metrics");
  EXPECT_EQ(response.headers.at("content-type"), "text/plain; version=0.0.4");
  for (const char* line :
       {"\nmoeflux:requests_finished_total 1\n", "\nmoeflux:generated_tokens_total 10\n",
        "\nmoeflux:prompt_tokens_total 24\n", "\nmoeflux:time_to_first_token_seconds_count 1\n",
        "\nmoeflux:inter_token_seconds_count 9\n", "\nmoeflux:requests_running 0\n"})
    EXPECT_NE(response.body.find(line), std::string::npos) << line << response.body;
}

}  // namespace
}  // namespace moeflux::test
