// /v1/chat/completions as a client sees it, byte by byte where clients are picky.
#include <map>
#include <regex>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "server/demo_server.h"

namespace moeflux::test {
namespace {

class OpenAiChatTest : public testing::Test {
 protected:
  DemoServer server_;
};

// Ids, times and what was measured differ from run to run.
std::string masked(std::string text) {
  text = std::regex_replace(text, std::regex("\"id\":\"(chatcmpl-|cmpl-|call_)[A-Za-z0-9]{24}\""),
                            "\"id\":\"$1ID\"");
  text = std::regex_replace(text, std::regex("\"created\":[0-9]+"), "\"created\":TIME");
  text = std::regex_replace(text, std::regex("\"timings\":.*"), "\"timings\":...");
  return std::regex_replace(text, std::regex("\"time_ms\":[0-9]+"), "\"time_ms\":MS");
}

std::string content_of(const ClientResponse& response) {
  std::string content;
  for (const std::string& event : response.events()) {
    if (event == "[DONE]") break;
    const Json chunk = parse_json(event, "chunk");
    for (const Json& choice : chunk.at("choices"))
      content += choice.at("delta").value("content", "");
  }
  return content;
}

TEST_F(OpenAiChatTest, OneResponse) {
  const ClientResponse response = server_.post("/v1/chat/completions", sum_question());
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  const Json body = response.json();
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "demo");
  const Json& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message"), (Json{{"role", "assistant"}, {"content", "12 + 30 = 42"}}));
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("logprobs"), nullptr);
  const Json& usage = body.at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 24);
  EXPECT_EQ(usage.at("completion_tokens"), 10);
  EXPECT_EQ(usage.at("total_tokens"), 34);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 0);
  EXPECT_EQ(body.at("timings").at("prompt_n"), 24);
  EXPECT_EQ(body.at("timings").at("predicted_n"), 10);
  EXPECT_GT(body.at("timings").at("predicted_per_second").get<double>(), 0);
  const Json& report = body.at("moeflux");
  EXPECT_EQ(report.at("top_k"), server_.service().facts().top_k);
  EXPECT_GT(report.at("bytes_read").get<std::uint64_t>(), 0u);
  EXPECT_GT(report.at("experts").at("misses").get<std::uint64_t>(), 0u);
  EXPECT_EQ(report.at("precision"), "fine");
}

TEST_F(OpenAiChatTest, TheSamePromptAgainIsCached) {
  server_.post("/v1/chat/completions", sum_question());
  const Json body = server_.post("/chat/completions", sum_question()).json();
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "12 + 30 = 42");
  const auto cached = body.at("usage").at("prompt_tokens_details").at("cached_tokens").get<int>();
  EXPECT_GT(cached, 0);
  EXPECT_EQ(body.at("timings").at("cache_n"), cached);
  EXPECT_EQ(body.at("timings").at("prompt_n"), 24 - cached);
}

TEST_F(OpenAiChatTest, AStreamByteByByte) {
  Json body = sum_question();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body["max_tokens"] = 3;
  const ClientResponse response = server_.post("/v1/chat/completions", body);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  const std::string head =
      R"(data: {"id":"chatcmpl-ID","object":"chat.completion.chunk","created":TIME,"model":"demo",)"
      R"("system_fingerprint":"moeflux-test","choices":)";
  const auto chunk = [&](const std::string& delta, const std::string& finish) {
    return head + R"([{"index":0,"delta":)" + delta + R"(,"logprobs":null,"finish_reason":)" +
           finish + R"(}],"usage":null})" + "\n\n";
  };
  EXPECT_EQ(masked(response.body),
            chunk(R"({"role":"assistant","content":""})", "null") +
                chunk(R"({"content":"1"})", "null") + chunk(R"({"content":"2"})", "null") +
                chunk(R"({"content":" +"})", "null") + chunk("{}", R"("length")") + head +
                R"([],"usage":{"prompt_tokens":24,"completion_tokens":3,"total_tokens":27,)"
                R"("prompt_tokens_details":{"cached_tokens":0},)"
                R"("completion_tokens_details":{"reasoning_tokens":0}},"timings":...)"
                "\n\ndata: [DONE]\n\n");
}

TEST_F(OpenAiChatTest, AStreamWithoutUsageHasTimingsInItsFinishChunk) {
  Json body = sum_question();
  body["stream"] = true;
  const std::vector<std::string> events = server_.post("/v1/chat/completions", body).events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json finish = parse_json(events[events.size() - 2], "chunk");
  EXPECT_EQ(finish.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(finish.at("choices").at(0).at("delta"), Json::object());
  EXPECT_FALSE(finish.contains("usage"));
  EXPECT_EQ(finish.at("timings").at("predicted_n"), 10);
  EXPECT_TRUE(finish.contains("moeflux"));
  std::set<std::string> ids, times;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = parse_json(events[i], "chunk");
    ids.insert(chunk.at("id"));
    times.insert(chunk.at("created").dump());
    EXPECT_EQ(chunk.at("choices").at(0).at("delta").contains("role"), i == 0);
  }
  EXPECT_EQ(ids.size(), 1u);
  EXPECT_EQ(times.size(), 1u);
}

TEST_F(OpenAiChatTest, ThoughtsComeApart) {
  Json body = question("What is 12 + 30?");
  body.erase("chat_template_kwargs");
  const Json message =
      server_.post("/v1/chat/completions", body).json().at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content"), "12 + 30 = 42");
  EXPECT_EQ(message.at("reasoning_content"), "2 + 0 = 2, 1 + 3 = 4, so 42.");
  EXPECT_EQ(message.at("reasoning"), message.at("reasoning_content"));

  body["stream"] = true;
  std::string content, reasoning;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json delta = parse_json(event, "chunk").at("choices").at(0).at("delta");
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    EXPECT_EQ(delta.value("reasoning", ""), delta.value("reasoning_content", ""));
  }
  EXPECT_EQ(content, "12 + 30 = 42");
  EXPECT_EQ(reasoning, "2 + 0 = 2, 1 + 3 = 4, so 42.");
}

TEST_F(OpenAiChatTest, ReasoningEffortNoneSwitchesThinkingOff) {
  Json body = question("What is 12 + 30?");
  body.erase("chat_template_kwargs");
  body["reasoning_effort"] = "none";
  const Json message =
      server_.post("/v1/chat/completions", body).json().at("choices").at(0).at("message");
  EXPECT_EQ(message, (Json{{"role", "assistant"}, {"content", "12 + 30 = 42"}}));
}

TEST_F(OpenAiChatTest, StopStringsAreNeverShown) {
  for (const char* stop : {" = ", "+ 30", "0 = 4"}) {
    const std::string whole = "12 + 30 = 42";
    Json body = sum_question();
    body["stop"] = stop;
    const Json choice = server_.post("/v1/chat/completions", body).json().at("choices").at(0);
    EXPECT_EQ(choice.at("message").at("content"), whole.substr(0, whole.find(stop)));
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    body["stream"] = true;
    EXPECT_EQ(content_of(server_.post("/v1/chat/completions", body)),
              whole.substr(0, whole.find(stop)));
  }
}

TEST_F(OpenAiChatTest, SeveralAnswersAreAllGiven) {
  Json body = sum_question();
  body["n"] = 3;  // one more than there are sessions
  const Json answers = server_.post("/v1/chat/completions", body).json();
  ASSERT_EQ(answers.at("choices").size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answers.at("choices").at(i).at("index"), i);
    EXPECT_EQ(answers.at("choices").at(i).at("message").at("content"), "12 + 30 = 42");
  }
  EXPECT_EQ(answers.at("usage").at("prompt_tokens"), 24);
  EXPECT_EQ(answers.at("usage").at("completion_tokens"), 30);
}

TEST_F(OpenAiChatTest, TheSeedDecides) {
  const auto answer = [&](int seed) {
    Json body = question("Tell me a short story about a frog.");
    body["temperature"] = 1.2;
    body["top_k"] = 0;
    body["top_p"] = 1;
    body["seed"] = seed;
    body["max_tokens"] = 24;
    return server_.post("/v1/chat/completions", body)
        .json()
        .at("choices")
        .at(0)
        .at("message")
        .at("content")
        .get<std::string>();
  };
  const std::string first = answer(1);
  EXPECT_EQ(answer(1), first);
  EXPECT_NE(answer(2), first);
}

TEST_F(OpenAiChatTest, LogprobsOfEveryToken) {
  Json body = sum_question();
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const Json choice = server_.post("/v1/chat/completions", body).json().at("choices").at(0);
  const Json& tokens = choice.at("logprobs").at("content");
  ASSERT_EQ(tokens.size(), 10u);
  std::string text;
  for (const Json& token : tokens) {
    text += token.at("token").get<std::string>();
    ASSERT_EQ(token.at("top_logprobs").size(), 3u);
    // Greedy: the token drawn is the most likely one.
    EXPECT_EQ(token.at("top_logprobs").at(0).at("token"), token.at("token"));
    EXPECT_EQ(token.at("top_logprobs").at(0).at("logprob"), token.at("logprob"));
    EXPECT_LE(token.at("logprob").get<double>(), 0);
    EXPECT_LE(token.at("top_logprobs").at(1).at("logprob"), token.at("logprob"));
    EXPECT_EQ(token.at("bytes").size(), token.at("token").get<std::string>().size());
  }
  EXPECT_EQ(text, "12 + 30 = 42");

  body["stream"] = true;
  std::string streamed;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json logprobs = parse_json(event, "chunk").at("choices").at(0).at("logprobs");
    if (logprobs.is_null()) continue;
    for (const Json& token : logprobs.at("content"))
      streamed += token.at("token").get<std::string>();
  }
  EXPECT_EQ(streamed, "12 + 30 = 42");
}

TEST_F(OpenAiChatTest, LogitBiasForbidsATokenAndIsChecked) {
  Json body = sum_question();
  body["logit_bias"] = {{"16", -100}};  // the "1" that the answer begins with
  const std::string answer = server_.post("/v1/chat/completions", body)
                                 .json()
                                 .at("choices")
                                 .at(0)
                                 .at("message")
                                 .at("content");
  EXPECT_NE(answer.substr(0, 1), "1");
  body["logit_bias"] = {{"100000000", 1}};
  const ClientResponse refused = server_.post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("param"), "logit_bias");
}

TEST_F(OpenAiChatTest, ProgressOfThePromptOnRequest) {
  Json body = sum_question();
  body["stream"] = true;
  body["return_progress"] = true;
  std::vector<Json> progress;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json chunk = parse_json(event, "chunk");
    ASSERT_TRUE(chunk.contains("choices"));
    if (chunk.contains("prompt_progress")) progress.push_back(chunk.at("prompt_progress"));
  }
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().at("total"), 24);
  EXPECT_EQ(progress.back().at("processed"), 24);
  EXPECT_EQ(progress.back().at("cache"), 0);
}

TEST_F(OpenAiChatTest, CharactersAreNeverCutInHalf) {
  // Tokens of single bytes: the answer is forced to be an umlaut, byte by byte.
  const Tokenizer& tokenizer = server_.service().tokenizer();
  const auto first = tokenizer.find_token("\xC3"), second = tokenizer.find_token("\xA4");
  if (!first || !second) GTEST_SKIP() << "SKIP: this tokenizer has no tokens of single bytes";
  for (const TokenId id : {*first, *second}) {
    Json body = sum_question();
    body["logit_bias"] = {{std::to_string(id), 100}};
    body["max_tokens"] = 4;
    body["stream"] = true;
    const std::string bytes(tokenizer.token_bytes(id));
    const ClientResponse response = server_.post("/v1/chat/completions", body);
    const std::string content = content_of(response);
    EXPECT_EQ(content, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << id;
  }
}

// A character of several tokens comes whole, in one chunk; what is cut off becomes one U+FFFD.
TEST_F(OpenAiChatTest, CharactersOfSeveralTokensComeWhole) {
  const std::string frog = "\xF0\x9F\x90\xB8", umlaut = "\xC3\xA4";
  const Tokenizer& tokenizer = server_.service().tokenizer();
  const auto n_frog = static_cast<int>(tokenizer.encode_data(frog).size());
  ASSERT_GT(n_frog, 1);
  Json body = sum_question();
  body["grammar"] = "root ::= \"a" + frog + umlaut + "z\"";
  body["stream"] = true;
  std::vector<std::string> pieces;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json delta = parse_json(event, "chunk").at("choices").at(0).at("delta");
    if (!delta.value("content", "").empty()) pieces.push_back(delta.at("content"));
  }
  std::string whole;
  for (const std::string& piece : pieces) {
    whole += piece;
    EXPECT_EQ(replace_invalid_utf8(piece), piece);
  }
  EXPECT_EQ(whole, "a" + frog + umlaut + "z");
  EXPECT_LT(static_cast<int>(pieces.size()), n_frog + 4);

  for (int n = 1; n < n_frog; ++n) {
    body["max_tokens"] = 1 + n;
    const std::string cut = content_of(server_.post("/v1/chat/completions", body));
    EXPECT_EQ(cut, "a\xEF\xBF\xBD") << n;
  }
}

// Of several choices each has its own text held back.
TEST_F(OpenAiChatTest, StopStringsInStreamsOfSeveralChoices) {
  Json body = sum_question();
  body["stop"] = Json::array({"0 = 4", "never"});
  body["stream"] = true;
  body["n"] = 2;
  std::map<int, std::string> contents;
  std::map<int, std::string> reasons;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json choice = parse_json(event, "chunk").at("choices").at(0);
    const int index = choice.at("index");
    contents[index] += choice.at("delta").value("content", "");
    if (!choice.at("finish_reason").is_null()) reasons[index] = choice.at("finish_reason");
  }
  for (const int index : {0, 1}) {
    EXPECT_EQ(contents[index], "12 + 3");
    EXPECT_EQ(reasons[index], "stop");
  }
}

TEST_F(OpenAiChatTest, ToolCallsOfTheModel) {
  Json body = parse_json(R"({
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [{"type": "function", "function": {"name": "get_weather",
      "description": "Current weather of a city",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                     "required": ["city"]}}}],
    "chat_template_kwargs": {"enable_thinking": false}, "temperature": 0})",
                         "test");
  const Json choice = server_.post("/v1/chat/completions", body).json().at("choices").at(0);
  ASSERT_TRUE(choice.at("message").contains("tool_calls")) << choice.dump();
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("content"), nullptr);
  const Json& call = choice.at("message").at("tool_calls").at(0);
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "get_weather");
  const Json arguments = parse_json(call.at("function").at("arguments").get<std::string>(), "call");
  EXPECT_EQ(arguments, (Json{{"city", "Paris"}}));

  body["stream"] = true;
  std::string joined, finish;
  int n_begins = 0;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json streamed = parse_json(event, "chunk").at("choices").at(0);
    if (!streamed.at("finish_reason").is_null()) finish = streamed.at("finish_reason");
    if (!streamed.at("delta").contains("tool_calls")) continue;
    const Json& delta = streamed.at("delta").at("tool_calls").at(0);
    EXPECT_EQ(delta.at("index"), 0);
    if (delta.contains("id")) {
      ++n_begins;
      EXPECT_EQ(delta.at("type"), "function");
      EXPECT_EQ(delta.at("function").at("name"), "get_weather");
    } else {
      EXPECT_FALSE(delta.at("function").contains("name"));
    }
    joined += delta.at("function").at("arguments").get<std::string>();
  }
  EXPECT_EQ(n_begins, 1);
  EXPECT_EQ(parse_json(joined, "call"), arguments);
  EXPECT_EQ(finish, "tool_calls");
}

}  // namespace
}  // namespace moeflux::test
