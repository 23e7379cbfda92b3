// What servers other than ours send, read through a connection to a scripted one.
#include "cli/chat/completion_reader.h"

#include <gtest/gtest.h>

#include "cli/chat_asking.h"
#include "cli/scripted_server.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

constexpr const char* kModels = R"({"data": [{"id": "first", "max_model_len": 4096},
                                             {"id": "second", "meta": {"n_ctx": 2048}}]})";

// Answers questions about models, and every chat with `chat`.
class OtherServer {
 public:
  explicit OtherServer(ScriptedAnswer chat, const std::string& models = json_response(kModels),
                       const std::string& props = json_response("{}", 404))
      : server_([=](const std::string& request) {
          if (request.find("/v1/models") < 20) return ScriptedAnswer{{models}};
          if (request.find("/props") < 20) return ScriptedAnswer{{props}};
          return chat;
        }) {}
  explicit OtherServer(const std::vector<std::string>& events) : OtherServer(chunked(events)) {}

  const ScriptedServer& server() const { return server_; }
  ChatReply answer(const ChatEvents& events = {}, const std::string& model = "") const {
    return connect(server_.url(), model)->answer(ask("Hi"), events);
  }

 private:
  ScriptedServer server_;
};

std::string chunk(const std::string& choice, const std::string& more = "") {
  std::string data = "{\"choices\": [" + choice + "]" + more + "}";
  std::replace(data.begin(), data.end(), '\n', ' ');
  return "data: " + data + "\n\n";
}
std::string delta(const std::string& members) {
  return chunk("{\"index\": 0, \"delta\": {" + members + "}}");
}
const std::string kStop = chunk(R"({"index": 0, "delta": {}, "finish_reason": "stop"})");
const std::string kDone = "data: [DONE]\n\n";

TEST(OtherServers, NameAndContext) {
  const OtherServer server({kStop});
  EXPECT_EQ(connect(server.server().url())->model(), "first");
  EXPECT_EQ(connect(server.server().url())->context_length(), 4096);
  EXPECT_EQ(connect(server.server().url(), "second")->context_length(), 2048);
  EXPECT_FALSE(connect(server.server().url())->defaults());
  const auto third = connect(server.server().url(), "third");
  EXPECT_EQ(third->context_length(), 0);
  EXPECT_NE(third->warning().find("does not list the model third; it has first, second"),
            std::string::npos);
  EXPECT_EQ(third->warning(), "");

  const OtherServer props({{kStop}}, json_response(R"({"data": [{"id": "a b"}]})"),
                          json_response(R"({"default_generation_settings": {"n_ctx": 77,
                            "params": {"temperature": 0.25, "top_k": 40, "top_p": "odd"}}})"));
  const auto backend = connect(props.server().url());
  EXPECT_EQ(backend->context_length(), 77);
  EXPECT_EQ(backend->defaults()->temperature, 0.25);
  EXPECT_EQ(backend->defaults()->top_p, 1);
  EXPECT_EQ(props.server().requests()[1].substr(0, 23), "GET /props?model=a%20b ");

  const OtherServer none({{kStop}}, json_response("{\"data\": []}"));
  expect_error(Errc::NotFound, {"--model-name"}, [&] { connect(none.server().url()); });
  const OtherServer no_list({{kStop}}, json_response("{}", 404));
  expect_error(Errc::NotFound, {"answers 404"}, [&] { connect(no_list.server().url()); });
  EXPECT_EQ(connect(no_list.server().url(), "mine")->model(), "mine");
}

TEST(OtherServers, AModelInMemoryComesFirstAndNoneIsLoadedToBeLookedAt) {
  const std::string props =
      json_response(R"({"default_generation_settings": {"n_ctx": 77, "params": {}}})");
  const OtherServer two(chunked({kStop}), json_response(R"({"data": [
    {"id": "cold", "meta": {"loaded": false}},
    {"id": "warm", "meta": {"loaded": true, "n_ctx": 64}}]})"),
                        props);
  EXPECT_EQ(connect(two.server().url())->model(), "warm");
  const std::size_t n_before = two.server().requests().size();
  const auto cold = connect(two.server().url(), "cold");
  EXPECT_EQ(two.server().requests().size(), n_before + 1);
  EXPECT_EQ(cold->context_length(), 0);
  cold->answer(ask("Hi"), {});
  EXPECT_EQ(cold->context_length(), 77);
}

TEST(OtherServers, EventsCutAnywhere) {
  const std::string text = ": ping\r\n\r\n" + delta(R"("role": "assistant", "content": null)") +
                           delta(R"("reasoning": "Hm.")") + delta(R"("content": "Caf\u00e9")") +
                           delta(R"("content": " au lait")") + kStop +
                           "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, "
                           "\"completion_tokens\": 4}}\n\n" +
                           kDone;
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  Told told;
  const ChatReply reply = OtherServer(bytes).answer(told.events());
  EXPECT_EQ(reply.reply.content, "Caf\xC3\xA9 au lait");
  EXPECT_EQ(reply.reply.reasoning, "Hm.");
  EXPECT_EQ(told.text, reply.reply.content);
  EXPECT_EQ(reply.n_prompt, 9);
  EXPECT_EQ(reply.n_answer, 4);
  EXPECT_EQ(reply.n_cached, 0);
  EXPECT_TRUE(told.prompts.empty());
}

TEST(OtherServers, ThoughtsUnderBothNamesComeOnce) {
  const ChatReply reply =
      OtherServer({delta(R"("reasoning_content": "Hm.", "reasoning": "Hm.")"), kStop}).answer();
  EXPECT_EQ(reply.reply.reasoning, "Hm.");
}

TEST(OtherServers, NumbersMayBeMissingOrOdd) {
  const ChatReply reply = OtherServer({delta("\"content\": \"x\""), kStop, kDone}).answer();
  EXPECT_EQ(reply.n_answer, 0);
  EXPECT_EQ(reply.n_prompt, 0);
  EXPECT_EQ(reply.hits + reply.misses, 0u);
  const ChatReply odd =
      OtherServer({chunk(R"({"delta": "what", "finish_reason": 7})",
                         R"(, "usage": [1], "timings": {"prompt_n": -5, "predicted_n": "many",
                             "cache_n": 1e300}, "moeflux": {"experts": 3}, "prompt_progress": 1)"),
                   "data: []\n\ndata: 12\n\n", kDone})
          .answer();
  EXPECT_EQ(odd.reply.content, "");
  EXPECT_EQ(odd.n_answer, 0);
  const ChatReply timed =
      OtherServer({delta("\"content\": \"x\""),
                   chunk(R"({"delta": {}, "finish_reason": "length"})",
                         R"(, "timings": {"cache_n": 30, "prompt_n": 5, "prompt_ms": 250,
                             "predicted_n": 12, "predicted_ms": 1500})")})
          .answer();
  EXPECT_EQ(timed.n_prompt, 35);
  EXPECT_EQ(timed.n_cached, 30);
  EXPECT_EQ(timed.n_answer, 12);
  EXPECT_EQ(timed.prompt_seconds, 0.25);
  EXPECT_EQ(timed.answer_seconds, 1.5);
  EXPECT_EQ(timed.end, ChatEnd::Length);
}

TEST(OtherServers, CallsInEveryShape) {
  const auto calls = [](const std::vector<std::string>& fragments) {
    std::vector<std::string> events;
    for (const std::string& fragment : fragments)
      events.push_back(delta("\"tool_calls\": [" + fragment + "]"));
    events.push_back(chunk(R"({"index": 0, "delta": {}, "finish_reason": "tool_calls"})"));
    std::string text;
    for (const ToolCall& call : OtherServer(events).answer().reply.calls)
      text += call.name + call.arguments + (call.complete ? ";" : "?");
    return text;
  };
  EXPECT_EQ(calls({R"({"index": 0, "id": "1", "function": {"name": "f", "arguments": ""}})",
                   R"({"index": 0, "function": {"arguments": "{\"a\""}})",
                   R"({"index": 1, "id": "2", "function": {"name": "g", "arguments": "{"}})",
                   R"({"index": 0, "function": {"arguments": ":1}"}})",
                   R"({"index": 1, "function": {"arguments": "}"}})"}),
            "f{\"a\":1};g{};");
  EXPECT_EQ(calls({R"({"id": "1", "function": {"name": "f", "arguments": "{}"}})",
                   R"({"id": "2", "function": {"name": "f", "arguments": {"x": [1]}}})"}),
            "f{};f{\"x\":[1]};")
      << "no index";
  EXPECT_EQ(calls({R"({"index": 0, "id": "1", "function": {"name": "f"}})",
                   R"({"index": 0, "id": "2", "function": {"name": "g"}})"}),
            "f{};g{};")
      << "all with the same index";
  EXPECT_EQ(calls({R"({"index": 0, "function": {"name": "f", "arguments": "{\"a\": "}})"}),
            "f{\"a\": ?")
      << "cut off";
  EXPECT_EQ(calls({R"({"index": 0, "function": {"name": "f", "arguments": "[1]"}})"}), "f[1]?");
  EXPECT_EQ(calls({R"({"index": 0, "function": {"arguments": "{}"}})", "7", "{}"}), "{}?");
  std::vector<std::string> many;
  for (int i = 0; i < 200; ++i)
    many.push_back("{\"index\": " + std::to_string(i) + ", \"function\": {\"name\": \"f\"}}");
  expect_error(Errc::LimitExceeded, {"more than 128 calls"}, [&] { calls(many); });
}

TEST(OtherServers, OneResponseInsteadOfAStream) {
  const OtherServer server(ScriptedAnswer{{json_response(
      R"({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant",
          "content": "Hello", "reasoning_content": "Hm.", "tool_calls": null}}],
          "usage": {"prompt_tokens": 3, "completion_tokens": 2,
                    "prompt_tokens_details": {"cached_tokens": 1}}})")}});
  Told told;
  const ChatReply reply = server.answer(told.events());
  EXPECT_EQ(told.text, "Hello");
  EXPECT_EQ(told.thought, "Hm.");
  EXPECT_EQ(reply.n_answer, 2);
  EXPECT_EQ(reply.n_cached, 1);
}

TEST(OtherServers, ErrorsInTheMiddle) {
  const std::string begin = delta("\"content\": \"Hel\"");
  const auto refused = [&](const std::string& rest, std::string_view part) {
    expect_error(Errc::Io, {part}, [&] { OtherServer({begin, rest}).answer(); });
  };
  refused("data: {\"error\": {\"message\": \"a drive has failed\", \"code\": 500}}\n\n",
          ": a drive has failed");
  refused("event: error\ndata: {\"error\": {\"message\": \"no\"}}\n\n", ": no");
  refused("event: error\ndata: {\"what\": 1}\n\n", "{\"what\": 1}");
  refused("error: {\"error\": {\"message\": \"old\"}}\n\n", ": old");
  refused("", "ended its answer in the middle");
  expect_error(Errc::Io, {"closed the connection in the middle"},
               [&] { OtherServer(chunked({begin}, false)).answer(); });
  expect_error(Errc::BadInput, {"an event of"}, [&] { OtherServer({"data: {\"a\n\n"}).answer(); });
  expect_error(Errc::BadInput, {"answers 400: too hot"}, [&] {
    OtherServer(ScriptedAnswer{{json_response("{\"error\": {\"message\": \"too hot\"}}", 400)}})
        .answer();
  });
}

TEST(OtherServers, NothingIsWaitedForAfterTheEnd) {
  ScriptedAnswer open = chunked({delta("\"content\": \"x\""), kStop, kDone}, false);
  open.stays_open = true;
  const OtherServer server(open);
  EXPECT_EQ(server.answer().reply.content, "x");
  EXPECT_TRUE(server.server().wait_for_left(1));
}

using cli::SseEvent;
using cli::SseReader;

// "name|data" of every event.
std::vector<std::string> read_events(const std::vector<std::string>& pieces) {
  std::vector<std::string> found;
  SseReader reader([&](const SseEvent& event) { found.push_back(event.name + "|" + event.data); });
  for (const std::string& piece : pieces) reader.feed(piece);
  reader.finish();
  return found;
}

using Events = std::vector<std::string>;

TEST(SseReader, ReadsEveryKindOfLine) {
  EXPECT_EQ(read_events({"data: one\n\n"}), Events{"|one"});
  EXPECT_EQ(read_events({"data:one\r\n\r\n"}), Events{"|one"});
  EXPECT_EQ(read_events({"data: one\r\rdata:  two\r\r"}), (Events{"|one", "| two"}));
  EXPECT_EQ(read_events({": ping\n\ndata: a\ndata: b\n\n"}), Events{"|a\nb"});
  EXPECT_EQ(read_events({"event: error\nid: 7\nretry: 3\ndata: x\n\ndata: y\n\n"}),
            (Events{"error|x", "|y"}));
  EXPECT_EQ(read_events({"data\n\n"}), Events{"|"});
  EXPECT_EQ(read_events({"event: lonely\n\n"}), Events{});
  EXPECT_EQ(read_events({"\xEF\xBB\xBF"
                         "data: after a mark\n\n"}),
            Events{"|after a mark"});
  EXPECT_EQ(read_events({"error: {\"code\":500}\n\n"}), Events{"error|{\"code\":500}"});
}

TEST(SseReader, CutsDoNotMatter) {
  const std::string text =
      "\xEF\xBB\xBF: ping\r\n\r\nevent: a\r\ndata: caf\xC3\xA9\r\ndata: two\r\n\r\ndata: x\n\n"
      ":\n\ndata: [DONE]\r\r";
  const Events wanted{"a|caf\xC3\xA9\ntwo", "|x", "|[DONE]"};
  std::vector<std::string> bytes;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    EXPECT_EQ(read_events({text.substr(0, i), text.substr(i)}), wanted) << "cut at " << i;
    if (i < text.size()) bytes.push_back(text.substr(i, 1));
  }
  EXPECT_EQ(read_events(bytes), wanted);
}

TEST(SseReader, TheEndOfTheStream) {
  EXPECT_EQ(read_events({"data: [DONE]\n"}), Events{"|[DONE]"});
  EXPECT_EQ(read_events({"data: one\n\ndata: hal"}), Events{"|one"});
  EXPECT_EQ(read_events({"data: one\ndata: hal"}), Events{"|one"});
}

TEST(SseReader, RefusesEndlessEvents) {
  const std::string piece(1 << 20, 'x');
  SseReader line([](const SseEvent&) {});
  line.feed("data: ");
  expect_error(Errc::LimitExceeded, {"more than 16 MiB"}, [&] {
    for (int i = 0; i < 17; ++i) line.feed(piece);
  });
  SseReader lines([](const SseEvent&) {});
  expect_error(Errc::LimitExceeded, {"more than 16 MiB"}, [&] {
    for (int i = 0; i < 17; ++i) lines.feed("data: " + piece + "\n");
  });
}

}  // namespace
}  // namespace moeflux::test
