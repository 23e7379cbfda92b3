// Tools of a chat: what a call becomes, how it is run, and who is asked.
#include "cli/chat/tools.h"

#include <chrono>
#include <csignal>
#include <deque>
#include <thread>

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::cli {
namespace {

using test::expect_error;
using test::TempDir;

CommandResult shell(const std::string& command, const CommandLimits& limits = {},
                    const std::function<bool()>& cancelled = {}) {
  return run_shell(command, {}, "", limits, cancelled);
}

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(ChatProcessTest, GivesOutputAndExitCode) {
  const CommandResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.output, "out\nerr\n");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(shell("kill -9 $$").exit_code, 128 + SIGKILL);
  EXPECT_EQ(run_shell("cat; echo \"$ARG_x\"", {"ARG_x=$(echo no)"}, "in\n", {}, {}).output,
            "in\n$(echo no)\n");
}

TEST(ChatProcessTest, LimitsOutput) {
  const CommandResult result =
      shell("head -c 100000 /dev/zero | tr '\\0' x", {.seconds = 20, .output_bytes = 1000});
  EXPECT_EQ(result.output, std::string(1000, 'x'));
  EXPECT_EQ(result.n_cut, 99000u);
  EXPECT_EQ(result.exit_code, 0);
}

TEST(ChatProcessTest, StopsInTime) {
  CommandResult result;
  EXPECT_LT(seconds([&] { result = shell("echo a; sleep 60", {.seconds = 0.2}); }), 10);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.output, "a\n");
  // One that does not listen is killed.
  EXPECT_LT(
      seconds([&] { result = shell("trap '' TERM; sleep 60 & wait; sleep 60", {.seconds = 0.2}); }),
      10);
  EXPECT_TRUE(result.timed_out);
}

TEST(ChatProcessTest, StopsWhenCancelled) {
  CommandResult result;
  EXPECT_LT(seconds([&] { result = shell("sleep 60", {}, [] { return true; }); }), 10);
  EXPECT_TRUE(result.cancelled);
}

TEST(ChatProcessTest, LeavesNothingBehind) {
  CommandResult result;
  EXPECT_LT(seconds([&] { result = shell("sleep 60 & echo $!"); }), 10);
  EXPECT_EQ(result.exit_code, 0);
  const auto pid = static_cast<pid_t>(std::stol(result.output));
  for (int i = 0; i < 500 && ::kill(pid, 0) == 0; ++i) {
    // Whoever inherits it may leave it a zombie.
    const std::string stat = read_text_file("/proc/" + std::to_string(pid) + "/stat");
    if (stat.find(") Z") != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChatToolsTest, ShellRunsWhatTheModelWrites) {
  ChatTools tools;
  EXPECT_TRUE(tools.definitions().is_null());
  tools.add_shell();
  const Json definition = tools.definitions()[0];
  EXPECT_EQ(definition["function"]["name"], "shell");
  EXPECT_EQ(definition["function"]["parameters"]["required"][0], "command");
  const ToolCommand command = tools.resolve("shell", R"({"command": "ls -l"})");
  EXPECT_EQ(command.command, "ls -l");
  EXPECT_TRUE(command.written_by_model);
  expect_error(Errc::BadInput, {"no tool \"sh\"; there are: shell"},
               [&] { tools.resolve("sh", "{}"); });
  expect_error(Errc::BadInput, {"command"}, [&] { tools.resolve("shell", "{}"); });
  expect_error(Errc::BadInput, {"is empty"}, [&] { tools.resolve("shell", R"({"command":" "})"); });
  expect_error(Errc::BadInput, {"zero byte"},
               [&] { tools.resolve("shell", R"({"command":"a\u0000b"})"); });
  expect_error(Errc::BadInput, {"JSON object"}, [&] { tools.resolve("shell", "[]"); });
  expect_error(Errc::BadInput, {""}, [&] { tools.resolve("shell", "{"); });
}

constexpr const char* kFile = R"([
  {"type": "function", "command": "echo \"$ARG_city $ARG_days\"",
   "function": {"name": "weather", "description": "Weather",
                "parameters": {"type": "object", "properties":
                  {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
  {"name": "now", "command": "date"}])";

TEST(ChatToolsTest, FilesGiveCommandsTheirArguments) {
  const TempDir directory;
  ChatTools tools;
  tools.add_file(directory.write("tools.json", kFile));
  EXPECT_EQ(tools.names(), (std::vector<std::string>{"weather", "now"}));
  EXPECT_FALSE(tools.definitions()[0].contains("command"));
  const std::string arguments =
      R"({"city": "$(touch /tmp/x); `id` \"'", "days": 3, "PATH": "/evil"})";
  const ToolCommand command = tools.resolve("weather", arguments);
  EXPECT_EQ(command.environment,
            (std::vector<std::string>{"ARG_city=$(touch /tmp/x); `id` \"'", "ARG_days=3"}));
  EXPECT_FALSE(command.written_by_model);
  EXPECT_EQ(run_shell(command.command, command.environment, command.input, {}, {}).output,
            "$(touch /tmp/x); `id` \"' 3\n");
  EXPECT_EQ(parse_json(command.input, "input"), parse_json(arguments, "arguments"));
}

TEST(ChatToolsTest, RefusesBadFiles) {
  const TempDir directory;
  const auto refuse = [&](const char* text, const char* why) {
    const std::string path = directory.write("tools.json", text);
    expect_error(Errc::BadInput, {why}, [&] { ChatTools().add_file(path); });
  };
  refuse("{}", "list of tools");
  refuse(R"([{"name": "x"}])", "command");
  refuse(R"([{"command": "x"}])", "name");
  refuse(R"([{"name": "a b", "command": "x"}])", "letters");
  refuse(R"([{"name": "x", "command": "x"}, {"name": "x", "command": "y"}])", "twice");
  refuse(R"([{"name": "x", "command": "x", "parameters": {"properties": {"a-b": {}}}}])", "a-b");
}

TEST(ChatToolsTest, ResultsSayWhatHappened) {
  const CommandLimits limits;
  EXPECT_EQ(tool_result_text({.output = "42\n"}, limits), "42");
  EXPECT_EQ(tool_result_text({.output = "", .exit_code = 1}, limits), "[exit code 1]");
  EXPECT_EQ(tool_result_text({.output = "x\xFF", .n_cut = 5}, limits),
            "x\xEF\xBF\xBD\n[5 more bytes of output were cut off]");
  EXPECT_EQ(tool_result_text({.output = "x", .exit_code = 143, .timed_out = true}, limits),
            "x\n[stopped after 60 seconds]");
}

// A user who has decided beforehand.
class Script : public LineSource {
 public:
  explicit Script(std::deque<std::string> lines, bool interactive = true)
      : lines_(std::move(lines)), interactive_(interactive) {}
  InputLine read(const std::string& prompt, const std::string& initial) override {
    prompts.push_back(prompt + initial);
    if (lines_.empty()) return {InputEnd::Interrupt, ""};
    const std::string line = lines_.front();
    lines_.pop_front();
    return {InputEnd::Line, line};
  }
  void discard_pending() override { ++n_discards; }
  bool is_interactive() const override { return interactive_; }
  std::vector<std::string> prompts;
  int n_discards = 0;

 private:
  std::deque<std::string> lines_;
  bool interactive_;
};

struct ToolRunnerTest : testing::Test {
  ToolRunnerTest() { tools.add_shell(); }
  static std::optional<std::string> run(ToolRunner& runner) {
    return runner.run({"shell", R"({"command": "echo hello"})", true}, {}, {});
  }
  ChatTools tools;
};

TEST_F(ToolRunnerTest, AsksEachTime) {
  Script script({"what?", "y", "no"});
  ToolRunner runner(tools, script, ToolConsent::Ask, false);
  EXPECT_EQ(run(runner), "hello");
  EXPECT_EQ(script.prompts.size(), 2u);
  EXPECT_EQ(script.n_discards, 2);
  EXPECT_EQ(run(runner), "The user does not want this to be run.");
  EXPECT_EQ(run(runner), std::nullopt);  // Ctrl-C
}

TEST_F(ToolRunnerTest, AlwaysAsksNoMore) {
  Script script({"a"});
  ToolRunner runner(tools, script, ToolConsent::Ask, false);
  EXPECT_EQ(run(runner), "hello");
  EXPECT_EQ(run(runner), "hello");
  EXPECT_EQ(script.prompts.size(), 1u);
}

TEST_F(ToolRunnerTest, EditedCommandsAreTold) {
  Script script({"e", "echo other"});
  ToolRunner runner(tools, script, ToolConsent::Ask, false);
  EXPECT_EQ(run(runner), "[the user ran this instead: echo other]\nother");
  EXPECT_EQ(script.prompts[1], "  $ echo hello");
}

TEST_F(ToolRunnerTest, WithoutATerminalNothingIsRunUnlessAllowed) {
  Script script({"y"}, /*interactive=*/false);
  ToolRunner asking(tools, script, ToolConsent::Ask, false);
  EXPECT_EQ(run(asking), "error: the user could not be asked, so it was not run");
  ToolRunner allowed(tools, script, ToolConsent::Given, false);
  EXPECT_EQ(run(allowed), "hello");
  EXPECT_TRUE(script.prompts.empty());
}

}  // namespace
}  // namespace moeflux::cli
