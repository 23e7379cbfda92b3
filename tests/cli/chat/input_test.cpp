// Lines to messages: quotes, backslashes, pastes, and standard input that is no terminal.
#include "cli/chat/input.h"

#include <array>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/chat/line_editor.h"
#include "cli/chat/loop.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::cli {
namespace {

using test::TempDir;

TEST(ChatInputTest, ALineIsAMessage) {
  InputAssembler input;
  EXPECT_EQ(input.add("hello"), "hello");
  EXPECT_EQ(input.add(""), "");
  EXPECT_EQ(input.add("C:\\\\"), "C:\\\\");  // an even number of backslashes
  EXPECT_FALSE(input.is_open());
}

TEST(ChatInputTest, QuotesHoldSeveralLines) {
  InputAssembler input;
  EXPECT_EQ(input.add("\"\"\"one"), std::nullopt);
  EXPECT_TRUE(input.is_open());
  EXPECT_EQ(input.add(""), std::nullopt);
  EXPECT_EQ(input.add("  /two\\"), std::nullopt);
  EXPECT_EQ(input.add("three\"\"\" "), "one\n\n  /two\\\nthree");
  EXPECT_TRUE(input.was_quoted());
  EXPECT_EQ(input.add("  \"\"\""), std::nullopt);
  EXPECT_EQ(input.add("text"), std::nullopt);
  EXPECT_EQ(input.add("\"\"\""), "text");
  EXPECT_EQ(input.add("\"\"\"one line\"\"\""), "one line");
  EXPECT_EQ(input.add("plain"), "plain");
  EXPECT_FALSE(input.was_quoted());
}

TEST(ChatInputTest, ABackslashContinuesALine) {
  InputAssembler input;
  EXPECT_EQ(input.add("one\\"), std::nullopt);
  EXPECT_EQ(input.add("two\\"), std::nullopt);
  EXPECT_EQ(input.add("three"), "one\ntwo\nthree");
}

TEST(ChatInputTest, APasteIsOneLineWithNewlines) {
  InputAssembler input;
  EXPECT_EQ(input.add("one\ntwo"), "one\ntwo");
  EXPECT_EQ(input.add("\"\"\"one\ntwo\"\"\""), "one\ntwo");
}

TEST(ChatInputTest, WhatIsOpenAtTheEndCounts) {
  InputAssembler input;
  EXPECT_EQ(input.finish(), std::nullopt);
  input.add("\"\"\"one");
  input.add("two");
  EXPECT_EQ(input.finish(), "one\ntwo");
  input.add("\"\"\"");
  EXPECT_EQ(input.finish(), std::nullopt);
}

TEST(ChatInputTest, MessagesAreLimited) {
  InputAssembler input;
  input.add("\"\"\"");
  const std::string half(InputAssembler::kMaxBytes / 2, 'x');
  input.add(half);
  test::expect_error(Errc::LimitExceeded, {"at most"}, [&] { input.add(half); });
  EXPECT_FALSE(input.is_open());
}

TEST(ChatInputTest, ReadsPlainLines) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string text = "one\r\n\ntwo";
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  PlainLines lines(ends[0]);
  EXPECT_EQ(lines.read("", "").text, "one");
  EXPECT_EQ(lines.read("", "").text, "");
  EXPECT_EQ(lines.read("", "").text, "two");
  EXPECT_EQ(lines.read("", "").end, InputEnd::EndOfInput);
  EXPECT_EQ(lines.read("", "").end, InputEnd::EndOfInput);
  ::close(ends[0]);
}

TEST(ChatSlashTest, FindsCommands) {
  EXPECT_EQ(parse_slash("hello /help"), std::nullopt);
  EXPECT_EQ(parse_slash("//usr/bin"), std::nullopt);
  EXPECT_EQ(unescape_slash("//usr/bin"), "/usr/bin");
  EXPECT_EQ(unescape_slash("a//b"), "a//b");
  EXPECT_EQ(parse_slash("/help")->kind, Slash::Help);
  for (const char* quit : {"/quit", "/exit", "/bye"})
    EXPECT_EQ(parse_slash(quit)->kind, Slash::Quit);
  const auto system = parse_slash("/system  You are brief. ");
  EXPECT_EQ(system->kind, Slash::System);
  EXPECT_EQ(system->rest, "You are brief.");
  EXPECT_EQ(parse_slash("/set top_k 3")->rest, "top_k 3");
}

TEST(ChatSlashTest, SuggestsWhatWasMeant) {
  test::expect_error(Errc::BadInput, {"did you mean /help?"}, [] { parse_slash("/halp"); });
  test::expect_error(Errc::BadInput, {"did you mean /sessions?"}, [] { parse_slash("/session"); });
  test::expect_error(Errc::BadInput, {"no command /usr/bin/env;"},
                     [] { parse_slash("/usr/bin/env is what?"); });
  test::expect_error(Errc::BadInput, {"no command /\xE2\x90\x9B[2J"},
                     [] { parse_slash("/\033[2J"); });
}

TEST(ChatSlashTest, HelpNamesAllOfThem) {
  const std::string help = slash_help();
  for (const char* name : {"/help", "/clear", "/system", "/save", "/load", "/sessions", "/set",
                           "/show", "/stats", "/retry", "/undo", "/quit", "/exit", "/bye"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
}

TEST(ChatHistoryTest, IsKeptFromOneChatToTheNext) {
  const TempDir directory;
  const std::string path = directory.file("state/moeflux/history");
  {
    ChatHistory history(path);
    EXPECT_TRUE(history.add("one"));
    EXPECT_FALSE(history.add("one"));
    EXPECT_FALSE(history.add("  secret"));
    EXPECT_FALSE(history.add(" \n"));
    EXPECT_FALSE(history.add(std::string(ChatHistory::kMaxEntryBytes + 1, 'x')));
    EXPECT_TRUE(history.add("two\nlines with \\n and \\"));
  }
  ChatHistory history(path);
  EXPECT_EQ(history.entries(), (std::vector<std::string>{"one", "two\nlines with \\n and \\"}));
  const auto rights = std::filesystem::status(path).permissions();
  EXPECT_EQ(rights, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(ChatHistoryTest, IsBounded) {
  const TempDir directory;
  std::string text;
  for (std::size_t i = 0; i < 2 * ChatHistory::kMaxEntries; ++i)
    text += "entry " + std::to_string(i) + "\n";
  const std::string path = directory.write("history", text);
  const ChatHistory history(path);
  ASSERT_EQ(history.entries().size(), ChatHistory::kMaxEntries);
  EXPECT_EQ(history.entries()[0], "entry 1000");
  EXPECT_EQ(ChatHistory(path).entries(), history.entries());
  EXPECT_LT(std::filesystem::file_size(path), text.size());
}

}  // namespace
}  // namespace moeflux::cli
