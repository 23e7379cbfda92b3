// The chat program with standard input that is no terminal: every line is a message, answers go to
// standard output and nothing else does. chat_tmux_test.py drives it on a terminal.
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

class ChatTest : public testing::Test {
 protected:
  Outcome chat(const std::string& input, std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), "chat");
    return run_moeflux(arguments, {.text = input,
                                   .env = {{"XDG_STATE_HOME", state_.path()},
                                           {"XDG_CACHE_HOME", state_.file("cache")}}});
  }
  std::vector<std::string> sessions() const {
    std::vector<std::string> paths;
    std::error_code error;
    for (const auto& file : fs::directory_iterator(state_.file("moeflux/sessions"), error))
      paths.push_back(file.path().string());
    return paths;
  }
  std::vector<Json> messages(const std::string& path) const {
    std::vector<Json> all;
    std::istringstream text(read_text_file(path));
    for (std::string line; std::getline(text, line);) all.push_back(parse_json(line, path));
    return all;
  }

  TempDir state_;
};

constexpr const char* kCalculator = R"([{"type": "function", "command":
  "test \"$ARG_expression\" = '123 + 456' && echo '{\"result\": 579}'",
  "function": {"name": "calculator", "description": "Evaluate an expression",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}},
                   "required": ["expression"]}}}])";

TEST_F(ChatTest, AnswersEveryLine) {
  const Outcome outcome = chat("What is 12 + 30?\nWhat is the capital of Japan?\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "12 + 30 = 42\nThe capital of Japan is Tokyo.\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(ChatTest, SavesEveryTurnAndResumes) {
  ASSERT_EQ(chat("What is 12 + 30?\n").exit_code, 0);
  ASSERT_EQ(sessions().size(), 1u);
  auto all = messages(sessions()[0]);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["role"], "user");
  EXPECT_EQ(all[0]["content"], "What is 12 + 30?");
  EXPECT_EQ(all[1]["role"], "assistant");
  EXPECT_EQ(all[1]["content"], "12 + 30 = 42");
  EXPECT_EQ(all[1]["model"], source_path("models/demo"));
  EXPECT_NE(all[1]["reasoning_content"].get<std::string>().find("so 42."), std::string::npos);
  EXPECT_EQ(fs::status(sessions()[0]).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);

  const Outcome resumed = chat("What is 1 + 2?\n/stats\n", {"--resume"});
  EXPECT_EQ(resumed.out.substr(0, 10), "1 + 2 = 3\n") << resumed.out << resumed.err;
  ASSERT_EQ(sessions().size(), 1u);
  EXPECT_EQ(messages(sessions()[0]).size(), 4u);

  const std::string name = fs::path(sessions()[0]).stem().string();
  EXPECT_EQ(chat("What is 2 + 2?\n", {"--resume", name}).out, "2 + 2 = 4\n");
  EXPECT_EQ(messages(sessions()[0]).size(), 6u);
  const Outcome list = chat("", {"--sessions"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_EQ(list.out.substr(0, name.size()), name);
  EXPECT_NE(list.out.find("What is 12 + 30?"), std::string::npos) << list.out;
}

TEST_F(ChatTest, ResumeNeedsAConversation) {
  EXPECT_EQ(chat("", {"--resume"}).exit_code, 1);
  EXPECT_NE(chat("", {"--resume", "nope"}).err.find("no session \"nope\""), std::string::npos);
  EXPECT_NE(chat("", {"--resume", ".."}).exit_code, 0);
  EXPECT_EQ(chat("", {"What"}).exit_code, 1);
}

TEST_F(ChatTest, ReadsOnlyWhatIsNew) {
  const Outcome outcome = chat(
      "What is 12 + 30?\nWhat is 5 + 6?\n/stats\nWhat is 7 + 8?\n/undo\nWhat is 7 + 9?\n/stats\n",
      {"--prefix-store", "off", "--no-think"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  // All up to the first answer was read in the first turn, all up to the second one before the
  // last.
  EXPECT_NE(outcome.out.find(", prompt 52 with 18 cached"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(", prompt 78 with 46 cached"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("7 + 9 = 16"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("taken back: What is 7 + 8?"), std::string::npos) << outcome.out;
}

TEST_F(ChatTest, TakesSeveralLinesAndEscapedSlashes) {
  const Outcome outcome = chat("\"\"\"What is\n12 + 30?\"\"\"\nRepeat after me: \\\nkey\n//help\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto all = messages(sessions().at(0));
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0]["content"], "What is\n12 + 30?");
  EXPECT_EQ(all[2]["content"], "Repeat after me: \nkey");
  EXPECT_EQ(all[4]["content"], "/help");
}

TEST_F(ChatTest, CommandsWork) {
  const Outcome outcome = chat(
      "/help\n/system Be brief.\n/system\nWhat is 12 + 30?\n/retry\n/save sums\n/clear\n/show\n"
      "/load sums\n/undo\n/sessions\n/set temp 0.5\n/set\n/quit\nWhat is 1 + 1?\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string& out = outcome.out;
  std::size_t at = 0;
  for (const char* part :
       {"/sessions", "the system message is changed\n", "Be brief.\n", "12 + 30 = 42\n",
        "12 + 30 = 42\n", "saved as sums\n", "a new conversation: chat-", "Be brief.",
        "sums: 3 messages\n", "taken back: What is 12 + 30?\n", "sums", "0.5"}) {
    at = out.find(part, at);
    ASSERT_NE(at, std::string::npos) << part << " is not in its place in:\n" << out;
    ++at;
  }
  EXPECT_EQ(out.find("1 + 1"), std::string::npos);
}

TEST_F(ChatTest, ErrorsEndNothing) {
  const Outcome outcome = chat(
      "/halp\n/load ../../etc/passwd\n/load nope\n/save\n/set temp hot\n/undo\n/retry\nbad \xFF "
      "text\nWhat is 12 + 30?\n",
      {"--no-think"});
  EXPECT_EQ(outcome.out, "12 + 30 = 42\n");
  EXPECT_EQ(outcome.exit_code, 1) << "a script wants to know";
  for (const char* part : {"did you mean /help?", "there is no session \"../../etc/passwd\"",
                           "no session \"nope\"", "/save needs a name", "\"hot\" is not a number",
                           "nothing to take back", "no question to answer", "UTF-8"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " is not in " << outcome.err;
  }
}

TEST_F(ChatTest, AConversationThatIsTooLongIsTakenBack) {
  std::string question = "Repeat after me:";
  for (int i = 0; i < 100; ++i) question += " fox";
  const Outcome outcome =
      chat(question + "\nWhat is 12 + 30?\n", {"-c", "96", "--no-think", "--prefix-store", "off"});
  EXPECT_EQ(outcome.out, "12 + 30 = 42\n");
  EXPECT_NE(outcome.err.find("and the context holds 96"), std::string::npos) << outcome.err;
  EXPECT_EQ(messages(sessions().at(0)).size(), 2u);
}

TEST_F(ChatTest, ShowsThoughtsWhenAsked) {
  EXPECT_EQ(chat("What is 46 + 98?\n", {"--think", "show"}).out,
            "6 + 8 = 14, 4 + 9 + 1 = 14, so 144.\n\n46 + 98 = 144\n");
  EXPECT_EQ(chat("What is 46 + 98?\n", {"--think", "hide"}).out, "46 + 98 = 144\n");
  EXPECT_EQ(chat("What is 46 + 98?\n", {"--think", "loud"}).exit_code, 2);
}

TEST_F(ChatTest, RendersMarkdownInColour) {
  const std::string question = "Write a Python function that adds a and b.\n";
  EXPECT_EQ(chat(question, {"--no-think"}).out,
            "```python\ndef add(a, b):\n    return a + b\n```\n");
  EXPECT_EQ(chat(question, {"--no-think", "--color", "on"}).out,
            "\033[36mdef add(a, b):\033[0m\n\033[36m    return a + b\033[0m\n");
  EXPECT_EQ(chat(question, {"--no-think", "--color", "on", "--no-markdown"}).out,
            "```python\ndef add(a, b):\n    return a + b\n```\n");
}

TEST_F(ChatTest, ToolsAnswerTheModel) {
  const std::string tools = state_.write("tools.json", kCalculator);
  const Outcome outcome =
      chat("Use the calculator: 123 + 456\n", {"--no-think", "--tool-file", tools, "--no-ask"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("call of calculator {\"expression\":"), std::string::npos)
      << outcome.out;
  EXPECT_EQ(outcome.out.substr(outcome.out.find("The result")), "The result is 579.\n");
  const auto all = messages(sessions().at(0));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1]["tool_calls"][0]["function"]["name"], "calculator");
  EXPECT_EQ(all[2]["role"], "tool");
  EXPECT_EQ(all[2]["content"], "{\"result\": 579}");
  EXPECT_EQ(all[2]["tool_call_id"], all[1]["tool_calls"][0]["id"]);
  EXPECT_EQ(all[3]["content"], "The result is 579.");
}

TEST_F(ChatTest, ToolsAreNotRunUnasked) {
  const std::string tools = state_.write("tools.json", kCalculator);
  const Outcome outcome =
      chat("Use the calculator: 123 + 456\n", {"--no-think", "--tool-file", tools});
  EXPECT_NE(outcome.err.find("no terminal to ask at"), std::string::npos) << outcome.err;
  const auto all = messages(sessions().at(0));
  EXPECT_EQ(all.at(2)["content"], "error: the user could not be asked, so it was not run");
}

TEST_F(ChatTest, NoSaveKeepsNothing) {
  EXPECT_EQ(chat("What is 12 + 30?\n", {"--no-save"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(state_.file("moeflux")));
}

}  // namespace
}  // namespace moeflux::test
