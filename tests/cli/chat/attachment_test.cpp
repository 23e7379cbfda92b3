// Files that go with a message, and the user's editor.
#include "cli/chat/attachment.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "cli/chat/external_editor.h"
#include "cli/terminal/terminal.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::cli {
namespace {

using test::expect_error;
using test::TempDir;

std::string file_with(const TempDir& directory, const std::string& name, const std::string& text) {
  std::ofstream(directory.file(name), std::ios::binary) << text;
  return directory.file(name);
}

TEST(ChatAttachmentTest, FilesStandBeforeTheMessageOnce) {
  const TempDir directory;
  ChatAttachments files;
  EXPECT_TRUE(files.empty());
  EXPECT_EQ(files.take("alone"), "alone");
  EXPECT_NE(files.add(file_with(directory, "a.txt", "one\r\ntwo")).find("a.txt"),
            std::string::npos);
  files.add(file_with(directory, "b.md", "```\nx\n```\n"));
  EXPECT_EQ(files.list(), "  a.txt (7 B)\n  b.md (10 B)\n");
  EXPECT_EQ(files.take("What is this?"),
            "File a.txt:\n```\none\ntwo\n```\n\n"
            "File b.md:\n````\n```\nx\n```\n````\n\nWhat is this?");
  EXPECT_EQ(files.take("again"), "again");
}

TEST(ChatAttachmentTest, OnlyTextsOfSomeSize) {
  const TempDir directory;
  ChatAttachments files;
  expect_error(Errc::NotFound, {"none.txt"}, [&] { files.add(directory.file("none.txt")); });
  expect_error(Errc::BadInput, {"bin"}, [&] { files.add(file_with(directory, "bin", "\xFF")); });
  expect_error(Errc::BadInput, {"zero", "no text"},
               [&] { files.add(file_with(directory, "zero", std::string("a\0b", 3))); });
  const std::string half(ChatAttachments::kMaxBytes / 2 + 1, 'x');
  files.add(file_with(directory, "half", half));
  expect_error(Errc::LimitExceeded, {"half", "1.0 MiB"},
               [&] { files.add(directory.file("half")); });
}

TEST(ChatAttachmentTest, PathsAsTheyAreTyped) {
  EXPECT_EQ(typed_path("a/b.txt"), "a/b.txt");
  EXPECT_EQ(typed_path("\"a b.txt\""), "a b.txt");
  EXPECT_EQ(typed_path("'a b.txt'"), "a b.txt");
  EXPECT_EQ(typed_path("a\\ b.txt"), "a b.txt");
}

TEST(ExternalEditorTest, GivesBackWhatItLeft) {
  EXPECT_EQ(edit_text("draft", "printf ' and more\\n\\n' >>"), "draft and more");
  EXPECT_EQ(edit_text("", "true"), "");
  EXPECT_EQ(edit_text("a\n", "test -f"), "a");
  expect_error(Errc::Io, {"false", "exit code 1", "EDITOR"}, [] { edit_text("", "false"); });
  expect_error(Errc::Io, {"exit code 127"}, [] { edit_text("", "no-such-editor-here 2>&-"); });
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with("moeflux-") && name.ends_with(".md")) << name;
  }
}

TEST(TerminalColumnsTest, WideCharactersAndCuts) {
  EXPECT_EQ(text_columns("abc"), 3);
  EXPECT_EQ(text_columns("\u65e5\u672c"), 4);
  EXPECT_EQ(text_columns("e\u0301"), 1);
  EXPECT_EQ(fit_columns("abcdef", 0), "abcdef");
  EXPECT_EQ(fit_columns("abcdef", 6), "abcdef");
  EXPECT_EQ(fit_columns("abcdef", 5), "abcd\u2026");
  EXPECT_EQ(fit_columns("\u65e5\u672c\u8a9e", 5), "\u65e5\u672c\u2026");
  EXPECT_EQ(fit_columns("\u65e5\u672c\u8a9e", 4), "\u65e5\u2026");
  EXPECT_EQ(padded("\u65e5", 4), "\u65e5  ");
  EXPECT_EQ(padded("abcde", 4), "abcde");
}

}  // namespace
}  // namespace moeflux::cli
