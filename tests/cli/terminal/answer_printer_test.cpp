#include "cli/terminal/answer_printer.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

std::string printed(bool thinking, bool color, const std::vector<std::string>& pieces) {
  testing::internal::CaptureStdout();
  AnswerPrinter printer(thinking, color);
  for (const std::string& piece : pieces) printer.write(piece);
  printer.finish();
  return testing::internal::GetCapturedStdout();
}

TEST(AnswerPrinterTest, EndsWithOneNewline) {
  EXPECT_EQ(printed(false, false, {"a", "b"}), "ab\n");
  EXPECT_EQ(printed(false, false, {"a\n"}), "a\n");
  EXPECT_EQ(printed(false, false, {}), "\n");
}

TEST(AnswerPrinterTest, DimsTheThoughtHoweverItIsCut) {
  const std::string expected = "\033[2mwhy\033[0m\n\nso\n";
  EXPECT_EQ(printed(true, true, {"why</think>\n\nso"}), expected);
  EXPECT_EQ(printed(true, true, {"why", "</think>", "\n\n", "so"}), expected);
  EXPECT_EQ(printed(true, true, {"w", "hy<", "/thi", "nk", ">\n\nso"}), expected);
  EXPECT_EQ(printed(true, true, {"why</think", ">", "\n\nso"}), expected);
  EXPECT_EQ(printed(false, true, {"<thi", "nk>\nwhy", "</think>so"}), expected);
  EXPECT_EQ(printed(true, true, {"why\n</think>\n\nso"}), "\033[2mwhy\n\033[0m\nso\n");
}

TEST(AnswerPrinterTest, ResetsAThoughtThatIsCutShort) {
  EXPECT_EQ(printed(true, true, {"why"}), "\033[2mwhy\033[0m\n");
  EXPECT_EQ(printed(true, true, {"why</th"}), "\033[2mwhy</th\033[0m\n");
  EXPECT_EQ(printed(true, true, {"why</think>\n"}), "\033[2mwhy\033[0m\n");
  EXPECT_EQ(printed(false, true, {"why</think>so"}), "why</think>so\n");
  EXPECT_EQ(printed(false, true, {" <t", "able>"}), " <table>\n");
}

// Whoever reads it without colours can tell what is thought.
TEST(AnswerPrinterTest, WithoutColorAThoughtHasBothTags) {
  EXPECT_EQ(printed(true, false, {"why</think>", "so"}), "<think>\nwhy</think>so\n");
  EXPECT_EQ(printed(false, false, {"<think>why</think>so"}), "<think>why</think>so\n");
  EXPECT_EQ(printed(true, false, {}), "\n");
}

}  // namespace
}  // namespace moeflux::cli
