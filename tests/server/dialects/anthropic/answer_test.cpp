// Events in, bytes out: what the demo model does not do by itself.
#include <regex>

#include <gtest/gtest.h>

#include "server/dialects/anthropic/anthropic.h"
#include "server/recording_exchange.h"

namespace moeflux::test {
namespace {

std::string masked(std::string text) {
  text = std::regex_replace(text, std::regex("(msg_|toolu_|req_)[A-Za-z0-9]{24}"), "$1ID");
  return std::regex_replace(text, std::regex(",\"timings\":.*\\}"), "}");
}

std::string event(const std::string& type, const std::string& rest) {
  return "event: " + type + "\ndata: {\"type\":\"" + type + "\"" + rest + "}\n\n";
}

const std::string kBegin =
    event("message_start",
          R"(,"message":{"id":"msg_ID","type":"message","role":"assistant","model":"m",)"
          R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":6,)"
          R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":0}})") +
    event("ping", "");

class AnthropicAnswerTest : public testing::Test {
 protected:
  std::string stream(const std::vector<GenerationEvent>& events, bool shows_thoughts = true) {
    run({.generation = {}, .stream = true, .shows_thoughts = shows_thoughts}, events);
    EXPECT_TRUE(exchange_->finished);
    return masked(exchange_->stream);
  }
  Json respond(const std::vector<GenerationEvent>& events) {
    run({.generation = {}}, events);
    return parse_json(masked(exchange_->response.body), "response");
  }
  void run(const AnthropicRequest& request, const std::vector<GenerationEvent>& events) {
    const auto answer = make_anthropic_answer(exchange_, {.name = "m"}, request);
    answer->begin();
    for (const GenerationEvent& each : events) answer->take(0, each);
  }
  static GenerationEnded ended(FinishReason reason) {
    GenerationEnded event;
    event.reason = reason;
    event.stats.n_prompt = 10;
    event.stats.n_cached = 4;
    event.stats.n_tokens = 7;
    event.n_reasoning = 2;
    return event;
  }
  static std::string end(const std::string& reason) {
    return event("message_delta",
                 R"(,"delta":{"stop_reason":")" + reason +
                     R"(","stop_sequence":null},"usage":{"input_tokens":6,)"
                     R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
                     R"("output_tokens":7,"output_tokens_details":{"thinking_tokens":2}})") +
           event("message_stop", "");
  }
  std::shared_ptr<RecordingExchange> exchange_ = std::make_shared<RecordingExchange>();
};

TEST_F(AnthropicAnswerTest, BlocksFollowEachOther) {
  EXPECT_EQ(
      stream({GenerationStarted{10, 4}, PromptProgress{10, 10, 4, 0.1}, ReasoningDelta{"Hm"},
              ReasoningDelta{"."}, ContentDelta{"I look."}, ToolCallBegin{0, "f"},
              ToolCallArguments{0, "{\"a\":"}, ToolCallArguments{0, "1}"}, ToolCallEnd{0, true},
              ToolCallBegin{1, "g"}, ToolCallEnd{1, true}, ended(FinishReason::ToolCalls)}),
      kBegin +
          event("content_block_start", R"(,"index":0,"content_block":{"type":"thinking",)"
                                       R"("thinking":"","signature":""})") +
          event("content_block_delta",
                R"(,"index":0,"delta":{"type":"thinking_delta","thinking":"Hm"})") +
          event("content_block_delta",
                R"(,"index":0,"delta":{"type":"thinking_delta","thinking":"."})") +
          event("content_block_delta",
                R"(,"index":0,"delta":{"type":"signature_delta","signature":"bW9lZmx1eA=="})") +
          event("content_block_stop", R"(,"index":0)") +
          event("content_block_start", R"(,"index":1,"content_block":{"type":"text","text":""})") +
          event("content_block_delta",
                R"(,"index":1,"delta":{"type":"text_delta","text":"I look."})") +
          event("content_block_stop", R"(,"index":1)") +
          event("content_block_start", R"(,"index":2,"content_block":{"type":"tool_use",)"
                                       R"("id":"toolu_ID","name":"f","input":{}})") +
          event("content_block_delta",
                R"(,"index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"})") +
          event("content_block_delta",
                R"(,"index":2,"delta":{"type":"input_json_delta","partial_json":"1}"})") +
          event("content_block_stop", R"(,"index":2)") +
          event("content_block_start", R"(,"index":3,"content_block":{"type":"tool_use",)"
                                       R"("id":"toolu_ID","name":"g","input":{}})") +
          event("content_block_stop", R"(,"index":3)") + end("tool_use"));
  EXPECT_EQ(exchange_->head.ping, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  EXPECT_EQ(exchange_->head.headers.at(0).first, "request-id");
}

TEST_F(AnthropicAnswerTest, ThoughtsMayStayHidden) {
  const std::string bytes = stream({GenerationStarted{10, 4}, ReasoningDelta{"secret"},
                                    ContentDelta{"Yes."}, ended(FinishReason::Length)},
                                   false);
  EXPECT_EQ(bytes.find("secret"), std::string::npos);
  EXPECT_NE(bytes.find("signature_delta"), std::string::npos);
  EXPECT_NE(bytes.find("\"stop_reason\":\"max_tokens\""), std::string::npos);
}

TEST_F(AnthropicAnswerTest, AnAnswerThatFailsEndsWithAnError) {
  GenerationEnded failed = ended(FinishReason::Error);
  failed.error = Error(Errc::Io, "the disk is gone");
  EXPECT_EQ(
      stream({GenerationStarted{10, 4}, ContentDelta{"1"}, failed}),
      kBegin +
          event("content_block_start", R"(,"index":0,"content_block":{"type":"text","text":""})") +
          event("content_block_delta", R"(,"index":0,"delta":{"type":"text_delta","text":"1"})") +
          event("error", R"(,"error":{"type":"api_error","message":"the disk is gone"},)"
                         R"("request_id":"req_ID")"));
}

TEST_F(AnthropicAnswerTest, AServerThatStopsSaysSo) {
  EXPECT_EQ(stream({ended(FinishReason::Cancelled)}),
            event("error",
                  R"(,"error":{"type":"overloaded_error","message":"the answer was cancelled: the )"
                  R"(server is stopping"},"request_id":"req_ID")"));
  respond({ended(FinishReason::Cancelled)});
  EXPECT_EQ(exchange_->response.status, 529);
}

TEST_F(AnthropicAnswerTest, OneMessage) {
  EXPECT_EQ(respond({GenerationStarted{10, 4}, ReasoningDelta{"H"}, ReasoningDelta{"m"},
                     ContentDelta{"I "}, ContentDelta{"look."}, ToolCallBegin{0, "f"},
                     ToolCallArguments{0, R"({"a":)"}, ToolCallArguments{0, "1}"},
                     ToolCallEnd{0, true}, ToolCallBegin{1, "g"}, ToolCallArguments{1, "{oops"},
                     ToolCallEnd{1, true}, ended(FinishReason::ToolCalls)}),
            parse_json(R"({
    "id": "msg_ID", "type": "message", "role": "assistant", "model": "m", "content": [
      {"type": "thinking", "thinking": "Hm", "signature": "bW9lZmx1eA=="},
      {"type": "text", "text": "I look."},
      {"type": "tool_use", "id": "toolu_ID", "name": "f", "input": {"a": 1}},
      {"type": "tool_use", "id": "toolu_ID", "name": "g", "input": {"arguments": "{oops"}}],
    "stop_reason": "tool_use", "stop_sequence": null,
    "usage": {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
              "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}}})",
                       "test"));
}

}  // namespace
}  // namespace moeflux::test
