// Answers of our server with the demo model behind it, which must be those of the model in this
// process; and the chat program that asks it.
#include "cli/chat/server_backend.h"

#include <gtest/gtest.h>

#include "cli/chat/local_backend.h"
#include "cli/chat_asking.h"
#include "cli/program.h"
#include "server/demo_server.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

std::string url_of(const DemoServer& server) {
  return "http://127.0.0.1:" + std::to_string(server.port());
}
std::unique_ptr<ServerBackend> connect_to(const DemoServer& server, const std::string& key = "") {
  return connect(url_of(server), "", key);
}

std::unique_ptr<cli::LocalBackend> local_backend() {
  EngineOptions options;
  options.n_threads = 1;
  options.context_length = 512;
  options.max_batch = 64;
  options.n_checkpoints = cli::LocalBackend::kCheckpoints;
  options.memory_bytes = std::uint64_t{1} << 30;
  options.elastic = false;
  return std::make_unique<cli::LocalBackend>(
      std::make_unique<Engine>(source_path("models/demo"), options),
      cli::PrefixOptions{.store = "off", .size = {}}, DraftOptions{});
}

const char* const kCalculator = R"([{"type": "function", "function": {"name": "calculator",
  "description": "Evaluate an expression", "parameters": {"type": "object",
  "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}])";

TEST(ServerBackendTest, AnswersAsTheModelItself) {
  DemoServer server;
  const auto remote = connect_to(server);
  const auto local = local_backend();
  EXPECT_EQ(remote->model(), "demo");
  EXPECT_EQ(remote->context_length(), 512);
  ASSERT_TRUE(remote->defaults());
  EXPECT_EQ(remote->defaults()->temperature, local->defaults()->temperature);
  EXPECT_EQ(remote->defaults()->top_k, local->defaults()->top_k);
  EXPECT_EQ(remote->warning(), "");
  for (ChatQuestion question :
       {ask("What is 12 + 30?"), ask("What is 46 + 98?", true),
        ask("Write a Python function that adds a and b."), ask("What is the capital of Japan?")}) {
    Told told;
    const ChatReply reply = remote->answer(question, told.events());
    const ChatReply wanted = local->answer(question, {});
    EXPECT_EQ(reply.reply.content, wanted.reply.content);
    EXPECT_EQ(reply.reply.reasoning, wanted.reply.reasoning);
    EXPECT_FALSE(reply.reply.content.empty());
    EXPECT_EQ(told.text, reply.reply.content);
    EXPECT_EQ(told.thought, reply.reply.reasoning);
    EXPECT_EQ(reply.end, ChatEnd::Complete);
    EXPECT_EQ(reply.n_prompt, wanted.n_prompt);
    EXPECT_EQ(reply.n_answer, wanted.n_answer);
    EXPECT_GT(reply.first_token_seconds, 0);
    EXPECT_GT(reply.answer_seconds, 0);
    EXPECT_GT(reply.hits + reply.misses, 0u);
    ASSERT_EQ(told.prompts.size(), 1u);
    EXPECT_EQ(told.prompts[0].first + told.prompts[0].second, reply.n_prompt);
  }
  EXPECT_NE(remote->statistics().find("experts"), std::string::npos) << remote->statistics();
}

TEST(ServerBackendTest, CallsToolsAndGoesOn) {
  DemoServer server;
  const auto backend = connect_to(server);
  ChatQuestion question = ask("Use the calculator: 123 + 456");
  question.tools = parse_json(kCalculator, "tools");
  Told told;
  const ChatReply reply = backend->answer(question, told.events());
  ASSERT_EQ(reply.reply.calls.size(), 1u);
  const ToolCall& call = reply.reply.calls[0];
  EXPECT_EQ(call.name, "calculator");
  EXPECT_EQ(parse_json(call.arguments, "arguments"), Json({{"expression", "123 + 456"}}));
  EXPECT_TRUE(call.complete);
  EXPECT_EQ(told.calls, std::vector<std::string>{"calculator"});

  question.messages.push_back(
      {{"role", "assistant"},
       {"content", reply.reply.content},
       {"tool_calls",
        Json::array({{{"id", "call_1"},
                      {"type", "function"},
                      {"function", {{"name", call.name}, {"arguments", call.arguments}}}}})}});
  question.messages.push_back(
      {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "{\"result\": 579}"}});
  const ChatReply result = backend->answer(question, {});
  EXPECT_EQ(result.reply.content, "The result is 579.");
  EXPECT_GT(result.n_cached, 0);
}

TEST(ServerBackendTest, CancellingStopsTheServer) {
  DemoServer server;
  const auto backend = connect_to(server);
  ChatQuestion question = ask("Tell me a short story about a frog.");
  // Without its end tokens the model never comes to an end by itself.
  const Json config = read_json_file(source_path("models/demo/generation_config.json"));
  for (const Json& token : config["eos_token_id"])
    question.sampling.logit_bias.push_back(token.dump() + "=-inf");
  Told told;
  ChatEvents events = told.events();
  events.cancelled = [&] { return told.text.size() > 20; };
  const ChatReply reply = backend->answer(question, events);
  EXPECT_EQ(reply.end, ChatEnd::Stopped);
  EXPECT_EQ(reply.reply.content, told.text);
  EXPECT_GT(told.text.size(), 20u);
  EXPECT_TRUE(server.wait_for_cancelled(1));
  EXPECT_EQ(backend->answer(ask("What is 12 + 30?"), {}).reply.content, "12 + 30 = 42");
}

TEST(ServerBackendTest, LimitsAndErrorsAreTold) {
  DemoServer server({.context = 96});
  const auto backend = connect_to(server);
  ChatQuestion question = ask("Tell me a short story about a frog.");
  question.max_tokens = 5;
  const ChatReply reply = backend->answer(question, {});
  EXPECT_EQ(reply.end, ChatEnd::Length);
  EXPECT_EQ(reply.n_answer, 5);
  std::string words = "Repeat after me:";
  for (int i = 0; i < 100; ++i) words += " fox";
  expect_error(Errc::LimitExceeded, {"96", "/undo or /clear"},
               [&] { backend->answer(ask(words), {}); });
  ChatQuestion nothing = ask("x");
  nothing.messages = Json::array();
  expect_error(Errc::BadInput, {"answers 400", "messages must be a list"},
               [&] { backend->answer(nothing, {}); });
}

TEST(ServerBackendTest, KeysAndLoading) {
  DemoServer server({.app = {.model_id = "demo", .version = "test", .api_keys = {"secret"}}});
  expect_error(Errc::BadInput, {"--api-key", "MOEFLUX_API_KEY"}, [&] { connect_to(server); });
  EXPECT_EQ(connect_to(server, "secret")->answer(ask("What is 12 + 30?"), {}).reply.content,
            "12 + 30 = 42");
  DemoServer loading({.loaded = false});
  expect_error(Errc::Io, {"answers 503", "load"}, [&] { connect_to(loading); });
}

TEST(ServerBackendTest, RequestsHaveOnlyWhatTheUserSet) {
  ChatQuestion question;
  question.messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  EXPECT_EQ(cli::chat_request(question, "m"), Json({{"model", "m"},
                                                    {"messages", question.messages},
                                                    {"stream", true},
                                                    {"stream_options", {{"include_usage", true}}},
                                                    {"return_progress", true}}));
  question.sampling = {.temperature = 0.5,
                       .top_p = 0.9,
                       .min_p = 0.1,
                       .typical_p = 0.8,
                       .top_k = 7,
                       .repeat_penalty = 1.1,
                       .presence_penalty = 0.2,
                       .frequency_penalty = 0.3,
                       .logit_bias = {"42=-1.5", "7=-inf"},
                       .seed = 3};
  question.max_tokens = 9;
  question.extra = {{"enable_thinking", false}, {"style", "plain"}};
  const Json body = cli::chat_request(question, "m");
  const Json wanted = {{"temperature", 0.5},
                       {"top_p", 0.9},
                       {"min_p", 0.1},
                       {"typical_p", 0.8},
                       {"top_k", 7},
                       {"repeat_penalty", 1.1},
                       {"repetition_penalty", 1.1},
                       {"presence_penalty", 0.2},
                       {"frequency_penalty", 0.3},
                       {"logit_bias", {{"42", -1.5}, {"7", false}}},
                       {"seed", 3},
                       {"max_tokens", 9},
                       {"chat_template_kwargs", question.extra}};
  for (const auto& [key, value] : wanted.items()) EXPECT_EQ(body[key], value) << key;
  question.sampling.seed = -1;
  EXPECT_FALSE(cli::chat_request(question, "m").contains("seed"));
}

// The chat program against a server.
class ChatServerTest : public testing::Test {
 protected:
  Outcome chat(const std::string& input, std::vector<std::string> arguments,
               std::map<std::string, std::string> env = {}) const {
    arguments.insert(arguments.begin(), "chat");
    env["XDG_STATE_HOME"] = state_.path();
    env["XDG_CACHE_HOME"] = state_.file("cache");
    return run_moeflux(arguments, {.text = input, .env = env});
  }

  TempDir state_;
  DemoServer server_{{.app = {.model_id = "demo", .version = "test", .api_keys = {"secret"}}}};
  std::string url_ = url_of(server_);
};

TEST_F(ChatServerTest, AnswersAndKeepsTheConversation) {
  const Outcome outcome = chat("What is 12 + 30?\nWhat is the capital of Japan?\n/stats\n/set\n",
                               {"--server", url_ + "/v1", "--api-key", "secret", "--no-think"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, 44), "12 + 30 = 42\nThe capital of Japan is Tokyo.\n");
  EXPECT_NE(outcome.out.find("server    " + url_ + ", demo\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
  const Outcome resumed = chat("What is 1 + 2?\n/show\n", {"--resume", "--no-think"},
                               {{"MOEFLUX_SERVER", url_}, {"MOEFLUX_API_KEY", "secret"}});
  EXPECT_EQ(resumed.out.substr(0, 10), "1 + 2 = 3\n") << resumed.err;
  EXPECT_NE(resumed.out.find("6 messages"), std::string::npos) << resumed.out;
}

TEST_F(ChatServerTest, RunsTools) {
  const std::string tools = state_.write("tools.json", R"([{"type": "function",
    "command": "echo '{\"result\": 579}'", "function": {"name": "calculator",
    "description": "Evaluate an expression", "parameters": {"type": "object",
    "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}])");
  const Outcome outcome = chat(
      "Use the calculator: 123 + 456\n",
      {"--server", url_, "--api-key", "secret", "--no-think", "--tool-file", tools, "--no-ask"});
  EXPECT_NE(outcome.out.find("The result is 579.\n"), std::string::npos)
      << outcome.out << outcome.err;
}

TEST_F(ChatServerTest, ErrorsEndNothing) {
  std::string longest = "Repeat after me:";
  for (int i = 0; i < 600; ++i) longest += " fox";
  const Outcome outcome = chat(longest + "\nWhat is 12 + 30?\n",
                               {"--server", url_, "--api-key", "secret", "--no-think"});
  EXPECT_EQ(outcome.out, "12 + 30 = 42\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("/undo or /clear"), std::string::npos) << outcome.err;
}

TEST_F(ChatServerTest, RefusesWhatMakesNoSense) {
  const auto refused = [&](std::vector<std::string> arguments, std::string_view part,
                           int code = 2) {
    const Outcome outcome = chat("", std::move(arguments));
    EXPECT_EQ(outcome.exit_code, code);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  refused({"--server", url_}, "set --api-key or MOEFLUX_API_KEY", 1);
  refused({"--server", "ftp://x"}, "only http:// and https:// are known");
  refused({"--server", url_, "--ram", "4G"}, "--ram: that is for models of this program");
  refused({"--server", url_, "-m", "models/demo"}, "--model: that is for");
  refused({"--server", url_, "--draft", "off"}, "--draft: that is for");
  refused({"--server", url_, source_path("models/demo")}, "--model-name");
  refused({"--model-name", "x"}, "--model-name needs --server URL");
}

TEST_F(ChatServerTest, AModelOfOnesOwnGoesBeforeTheVariable) {
  const Outcome outcome = chat("What is 12 + 30?\n", {source_path("models/demo"), "--no-think"},
                               {{"MOEFLUX_SERVER", "http://127.0.0.1:9"}});
  EXPECT_EQ(outcome.out, "12 + 30 = 42\n") << outcome.err;
}

}  // namespace
}  // namespace moeflux::test
