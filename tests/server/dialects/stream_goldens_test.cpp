// Streams byte by byte: the same answer, with a thought, text and two calls, in the words of each
// dialect. Anthropic's are in anthropic_answer_test.cpp.
#include <regex>

#include <gtest/gtest.h>

#include "server/dialects/ollama/ollama.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/responses/responses.h"
#include "server/recording_exchange.h"

namespace moeflux::test {
namespace {

// Ids, times and what was measured differ from run to run.
std::string masked(std::string text) {
  text = std::regex_replace(text,
                            std::regex("\"(chatcmpl-|cmpl-|call_|resp_|msg_|rs_|fc_)"
                                       "[A-Za-z0-9]{24}\""),
                            "\"$1ID\"");
  text = std::regex_replace(text, std::regex("\"created\":[0-9]+"), "\"created\":TIME");
  text = std::regex_replace(text, std::regex("\"created_at\":\"[^\"]*\""), "\"created_at\":TIME");
  text = std::regex_replace(text, std::regex("_duration\":[0-9]+"), "_duration\":NS");
  text = std::regex_replace(text, std::regex(",\"(timings|moeflux)\":[^\n]*"), "}");
  return std::regex_replace(text, std::regex("\"response\":\\{[^\n]*"), "\"response\":...");
}

GenerationEnded ended(FinishReason reason) {
  GenerationEnded event;
  event.reason = reason;
  event.stats.n_prompt = 10;
  event.stats.n_cached = 4;
  event.stats.n_tokens = 7;
  event.n_reasoning = 2;
  if (reason == FinishReason::Error) event.error = Error(Errc::Io, "the disk is gone");
  return event;
}

const std::vector<GenerationEvent> kAnswer{GenerationStarted{10, 4},
                                           PromptProgress{10, 10, 4, 0.002},
                                           ReasoningDelta{"Hm"},
                                           ReasoningDelta{"."},
                                           ContentDelta{"I look."},
                                           ToolCallBegin{0, "f"},
                                           ToolCallArguments{0, "{\"a\":"},
                                           ToolCallArguments{0, "1}"},
                                           ToolCallEnd{0, true},
                                           ToolCallBegin{1, "g"},
                                           ToolCallArguments{1, "{}"},
                                           ToolCallEnd{1, true},
                                           ended(FinishReason::ToolCalls)};
const std::vector<GenerationEvent> kFailure{GenerationStarted{10, 4}, ContentDelta{"1"},
                                            ended(FinishReason::Error)};

const AnswerModel kModel{.name = "m"};

class StreamGoldens : public testing::Test {
 protected:
  std::string chat(const std::vector<GenerationEvent>& events, OpenAiRequest request) {
    request.stream = true;
    return run(*make_chat_answer(exchange_, kModel, "test", request), events);
  }
  std::string text(const std::vector<GenerationEvent>& events, OpenAiRequest request) {
    request.stream = true;
    return run(*make_text_answer(exchange_, kModel, "test", request), events);
  }
  std::string responses(const std::vector<GenerationEvent>& events) {
    ResponsesRequest request;
    request.stream = true;
    return run(*make_responses_answer(exchange_, kModel, request, nullptr, nullptr).answer, events);
  }
  std::string ollama(const std::vector<GenerationEvent>& events) {
    return run(*make_ollama_answer(OllamaKind::Chat, exchange_, kModel, true), events);
  }

  std::string run(DialectAnswer& answer, const std::vector<GenerationEvent>& events) {
    answer.begin();
    for (const GenerationEvent& each : events) answer.take(0, each);
    return done();
  }
  std::string done() {
    EXPECT_TRUE(exchange_->finished);
    return masked(exchange_->stream);
  }
  std::shared_ptr<RecordingExchange> exchange_ = std::make_shared<RecordingExchange>();
};

std::string openai_head(const std::string& id, const std::string& object) {
  return R"(data: {"id":")" + id + R"(","object":")" + object +
         R"(","created":TIME,"model":"m","system_fingerprint":"moeflux-test","choices":)";
}
const std::string kChatHead = openai_head("chatcmpl-ID", "chat.completion.chunk");
const std::string kTextHead = openai_head("cmpl-ID", "text_completion");
const std::string kOpenAiError =
    R"(data: {"error":{"message":"the disk is gone","type":"server_error","param":null,)"
    R"("code":null}})"
    "\n\n";
constexpr const char* kUsage =
    R"([],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,)"
    R"("prompt_tokens_details":{"cached_tokens":4},)"
    R"("completion_tokens_details":{"reasoning_tokens":2}}})"
    "\n\ndata: [DONE]\n\n";

std::string chat_choice(const std::string& delta, const std::string& finish = "null") {
  return R"([{"index":0,"delta":)" + delta + R"(,"logprobs":null,"finish_reason":)" + finish + "}]";
}

TEST_F(StreamGoldens, OpenAiChat) {
  const auto chunk = [](const std::string& delta) {
    return kChatHead + chat_choice(delta) + R"(,"usage":null})" + "\n\n";
  };
  EXPECT_EQ(
      chat(kAnswer, {.generation = {}, .include_usage = true, .return_progress = true}),
      chunk(R"({"role":"assistant","content":""})") + kChatHead + chat_choice("{}") +
          R"(,"usage":null,"prompt_progress":{"total":10,"cache":4,"processed":10,"time_ms":2}})"
          "\n\n" +
          chunk(R"({"reasoning_content":"Hm","reasoning":"Hm"})") +
          chunk(R"({"reasoning_content":".","reasoning":"."})") +
          chunk(R"({"content":"I look."})") +
          chunk(R"({"tool_calls":[{"index":0,"id":"call_ID","type":"function",)"
                R"("function":{"name":"f","arguments":""}}]})") +
          chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]})") +
          chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})") +
          chunk(R"({"tool_calls":[{"index":1,"id":"call_ID","type":"function",)"
                R"("function":{"name":"g","arguments":""}}]})") +
          chunk(R"({"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]})") + kChatHead +
          chat_choice("{}", R"("tool_calls")") + R"(,"usage":null})" + "\n\n" + kChatHead + kUsage);
  EXPECT_EQ(exchange_->head.content_type, "text/event-stream");
  EXPECT_EQ(exchange_->head.ping, ": ping\n\n");
}

TEST_F(StreamGoldens, OpenAiChatThatFails) {
  EXPECT_EQ(chat(kFailure, {}), kChatHead + chat_choice(R"({"role":"assistant","content":""})") +
                                    "}\n\n" + kChatHead + chat_choice(R"({"content":"1"})") +
                                    "}\n\n" + kOpenAiError);
}

TEST_F(StreamGoldens, OpenAiChatOfTwoChoices) {
  OpenAiRequest request{.generation = {}, .stream = true, .include_usage = true};
  request.generation.n = 2;
  const auto answer = make_chat_answer(exchange_, kModel, "test", request);
  answer->begin();
  for (const int choice : {1, 0}) answer->take(choice, ended(FinishReason::Length));
  const auto of = [](int index, const std::string& delta, const std::string& finish) {
    return kChatHead + R"([{"index":)" + std::to_string(index) + R"(,"delta":)" + delta +
           R"(,"logprobs":null,"finish_reason":)" + finish + R"(}],"usage":null})" + "\n\n";
  };
  const std::string first = R"({"role":"assistant","content":""})";
  EXPECT_EQ(done(), of(0, first, "null") + of(1, first, "null") + of(1, "{}", R"("length")") +
                        of(0, "{}", R"("length")") + kChatHead +
                        R"([],"usage":{"prompt_tokens":10,"completion_tokens":14,)"
                        R"("total_tokens":24,"prompt_tokens_details":{"cached_tokens":4},)"
                        R"("completion_tokens_details":{"reasoning_tokens":4}}})"
                        "\n\ndata: [DONE]\n\n");
}

TEST_F(StreamGoldens, OpenAiCompletions) {
  const auto chunk = [](const std::string& text, const std::string& finish = "null") {
    return kTextHead + R"([{"index":0,"text":")" + text + R"(","logprobs":null,"finish_reason":)" +
           finish + R"(}],"usage":null})" + "\n\n";
  };
  OpenAiRequest request{.generation = {}, .include_usage = true, .echo = {"Say: "}};
  EXPECT_EQ(
      text({GenerationStarted{10, 4}, ContentDelta{"a"}, ContentDelta{"\n"},
            ended(FinishReason::Stop)},
           request),
      chunk("Say: ") + chunk("a") + chunk("\\n") + chunk("", R"("stop")") + kTextHead + kUsage);
  exchange_ = std::make_shared<RecordingExchange>();
  EXPECT_EQ(text(kFailure, {}),
            kTextHead + R"([{"index":0,"text":"1","logprobs":null,"finish_reason":null}]})" +
                "\n\n" + kOpenAiError);
}

TEST_F(StreamGoldens, Responses) {
  std::string want;
  int n = 0;
  const auto add = [&](const std::string& type, const std::string& members) {
    want += "event: response." + type + "\ndata: {\"type\":\"response." + type +
            "\",\"sequence_number\":" + std::to_string(n++) + "," + members +
            (members.ends_with("...") ? "" : "}") + "\n\n";
  };
  const std::string response = "\"response\":...";
  add("created", response);
  add("in_progress", response);

  const auto thought = [](const char* status, const std::string& content) {
    return R"("output_index":0,"item":{"id":"rs_ID","type":"reasoning","status":")" +
           std::string(status) + R"(","summary":[],"content":)" + content + "}";
  };
  const std::string in_thought = R"("item_id":"rs_ID","output_index":0,"content_index":0)";
  add("output_item.added", thought("in_progress", "[]"));
  add("content_part.added", in_thought + R"(,"part":{"type":"reasoning_text","text":""})");
  for (const char* text : {"Hm", "."})
    add("reasoning_text.delta", in_thought + R"(,"delta":")" + text + "\"");
  add("reasoning_text.done", in_thought + R"(,"text":"Hm.")");
  add("content_part.done", in_thought + R"(,"part":{"type":"reasoning_text","text":"Hm."})");
  add("output_item.done", thought("completed", R"([{"type":"reasoning_text","text":"Hm."}])"));

  const auto message = [](const char* status, const std::string& content) {
    return R"("output_index":1,"item":{"id":"msg_ID","type":"message","status":")" +
           std::string(status) + R"(","role":"assistant","content":)" + content + "}";
  };
  const auto part = [](const std::string& text) {
    return R"({"type":"output_text","text":")" + text + R"(","annotations":[],"logprobs":[]})";
  };
  const std::string in_text = R"("item_id":"msg_ID","output_index":1,"content_index":0)";
  add("output_item.added", message("in_progress", "[]"));
  add("content_part.added", in_text + R"(,"part":)" + part(""));
  add("output_text.delta", in_text + R"(,"delta":"I look.","logprobs":[])");
  add("output_text.done", in_text + R"(,"text":"I look.","logprobs":[])");
  add("content_part.done", in_text + R"(,"part":)" + part("I look."));
  add("output_item.done", message("completed", "[" + part("I look.") + "]"));

  const auto call = [&](int index, const char* name, const std::vector<std::string>& pieces,
                        const std::string& arguments) {
    const std::string at = std::to_string(index);
    const auto item = [&](const char* status, const std::string& text) {
      return "\"output_index\":" + at +
             R"(,"item":{"id":"fc_ID","type":"function_call","status":")" + status +
             R"(","call_id":"call_ID","name":")" + name + R"(","arguments":")" + text + "\"}";
    };
    const std::string place = R"("item_id":"fc_ID","output_index":)" + at;
    add("output_item.added", item("in_progress", ""));
    for (const std::string& piece : pieces)
      add("function_call_arguments.delta", place + R"(,"delta":")" + piece + "\"");
    add("function_call_arguments.done",
        place + R"(,"name":")" + name + R"(","arguments":")" + arguments + "\"");
    add("output_item.done", item("completed", arguments));
  };
  call(2, "f", {R"({\"a\":)", "1}"}, R"({\"a\":1})");
  call(3, "g", {"{}"}, "{}");
  add("completed", response);
  EXPECT_EQ(responses(kAnswer), want);
}

TEST_F(StreamGoldens, ResponsesThatFail) {
  const std::string bytes = responses(kFailure);
  EXPECT_NE(bytes.find("event: response.failed\ndata: {\"type\":\"response.failed\","),
            std::string::npos)
      << bytes;
  EXPECT_EQ(bytes.find("response.completed"), std::string::npos);
  EXPECT_NE(exchange_->stream.find("\"message\":\"the disk is gone\""), std::string::npos);
}

TEST_F(StreamGoldens, OllamaLines) {
  const auto line = [](const std::string& message, const std::string& rest) {
    return R"({"model":"m","created_at":TIME,"message":{"role":"assistant",)" + message + "}," +
           rest + "}\n";
  };
  const std::string more = R"("done":false)";
  EXPECT_EQ(ollama(kAnswer),
            line(R"("content":"","thinking":"Hm")", more) +
                line(R"("content":"","thinking":".")", more) +
                line(R"("content":"I look.")", more) +
                line(R"("content":"","tool_calls":[{"id":"call_ID","function":{"index":0,)"
                     R"("name":"f","arguments":{"a":1}}}])",
                     more) +
                line(R"("content":"","tool_calls":[{"id":"call_ID","function":{"index":1,)"
                     R"("name":"g","arguments":{}}}])",
                     more) +
                line(R"("content":"")",
                     R"("done":true,"done_reason":"stop","total_duration":NS,"load_duration":NS,)"
                     R"("prompt_eval_count":10,"prompt_eval_duration":NS,"eval_count":7,)"
                     R"("eval_duration":NS)"));
  EXPECT_EQ(exchange_->head.content_type, "application/x-ndjson");
  exchange_ = std::make_shared<RecordingExchange>();
  EXPECT_EQ(ollama(kFailure),
            line(R"("content":"1")", more) + "{\"error\":\"the disk is gone\"}\n");
}

}  // namespace
}  // namespace moeflux::test
