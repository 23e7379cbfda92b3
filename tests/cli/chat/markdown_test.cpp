// Markdown on a terminal: what is shown, and that it does not depend on how the text arrived.
#include "cli/chat/markdown.h"

#include <random>

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace moeflux::cli {
namespace {

std::string render(std::string_view text, int width = 0) {
  MarkdownRenderer renderer(width);
  const std::string out = renderer.feed(text);
  return out + renderer.finish();
}

// Styles as tags that can be read: <b>, <i>, <u>, <d>, <c>.
std::string tagged(std::string_view text, int width = 0) {
  std::string out = render(text, width);
  const auto replace = [&out](const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = out.find(from, at)) != std::string::npos; at += to.size())
      out.replace(at, from.size(), to);
  };
  replace("\033[0m", "</>");
  replace("\033[1m", "<b>");
  replace("\033[1;3m", "<bi>");
  replace("\033[1;4m", "<bu>");
  replace("\033[2m", "<d>");
  replace("\033[3m", "<i>");
  replace("\033[36m", "<c>");
  replace("\033[1;36m", "<bc>");
  return out;
}

TEST(ChatMarkdownTest, Emphasis) {
  EXPECT_EQ(tagged("a **bold** b"), "a <b>bold</> b");
  EXPECT_EQ(tagged("an *italic* word"), "an <i>italic</> word");
  EXPECT_EQ(tagged("an _italic_ word"), "an <i>italic</> word");
  EXPECT_EQ(tagged("__bold__"), "<b>bold</>");
  EXPECT_EQ(tagged("***both***"), "<bi>both</>");
  EXPECT_EQ(tagged("**two words**, then"), "<b>two words</>, then");
  EXPECT_EQ(tagged("**a *b* c**"), "<b>a </><bi>b</><b> c</>");
  EXPECT_EQ(tagged("**a `b` c**"), "<b>a </><bc>b</><b> c</>");
}

TEST(ChatMarkdownTest, WhatIsNoEmphasisStays) {
  for (const char* text :
       {"2 * 3 * 4", "2*3*4", "snake_case_name", "*.cpp and *.h", "a * b", "**", "** a **",
        "an *open one", "f(**kwargs)", "5 < 6 > 4", "a_b_", "[text](http://x/y_z_)", "\\o/"}) {
    EXPECT_EQ(tagged(text), text);
  }
  EXPECT_EQ(tagged("an **open one\nnext"), "an **open one\nnext");
  EXPECT_EQ(tagged("\\*not\\* \\`this\\`"), "*not* `this`");
}

TEST(ChatMarkdownTest, InlineCode) {
  EXPECT_EQ(tagged("use `a*b*c` now"), "use <c>a*b*c</> now");
  EXPECT_EQ(tagged("``a ` b``"), "<c>a ` b</>");
  EXPECT_EQ(tagged("an ` alone"), "an ` alone");
  EXPECT_EQ(tagged("`**x**`"), "<c>**x**</>");
}

TEST(ChatMarkdownTest, FencedCodeHidesItsFences) {
  EXPECT_EQ(tagged("see:\n```python\ndef f(a, *b):\n    return `a`\n```\ndone"),
            "see:\n<c>def f(a, *b):</>\n<c>    return `a`</>\ndone");
  EXPECT_EQ(tagged("~~~\n```\n~~~\n"), "<c>```</>\n");
  EXPECT_EQ(tagged("```` \n```\n````\nx"), "<c>```</>\nx");
  EXPECT_EQ(tagged("```\nnever closed"), "<c>never closed</>");
  EXPECT_EQ(tagged("```inline``` text"), "<c>inline</> text");
}

TEST(ChatMarkdownTest, HeadingsListsQuotesAndRules) {
  EXPECT_EQ(tagged("# Title\ntext"), "<bu>Title</>\ntext");
  EXPECT_EQ(tagged("### Small *x*"), "<b>Small </><bi>x</>");
  EXPECT_EQ(tagged("#hashtag"), "#hashtag");
  EXPECT_EQ(tagged("- one\n* two\n  + three"),
            "\xE2\x80\xA2 one\n\xE2\x80\xA2 two\n  \xE2\x80\xA2 three");
  EXPECT_EQ(tagged("1. one\n12) two\n1.5 is"), "1. one\n12) two\n1.5 is");
  EXPECT_EQ(tagged("- **a**: b"), "\xE2\x80\xA2 <b>a</>: b");
  EXPECT_EQ(tagged("> said"), "<d>\xE2\x94\x82 </>said");
  EXPECT_EQ(tagged("**bold** line"), "<b>bold</> line");
  EXPECT_EQ(tagged("-5 degrees"), "-5 degrees");
  std::string rule = "a\n<d>";
  for (int i = 0; i < 10; ++i) rule += "\xE2\x94\x80";
  EXPECT_EQ(tagged("a\n---\nb", 10), rule + "</>\nb");
}

TEST(ChatMarkdownTest, TablesStayAsTheyAre) {
  const char* table = "| a | **b** |\n|---|:--|\n| 1 |   2 |\n";
  EXPECT_EQ(tagged(table), table);
  EXPECT_EQ(tagged(table, 5), table);
}

TEST(ChatMarkdownTest, BreaksLinesBetweenWords) {
  EXPECT_EQ(tagged("one two three four", 10), "one two\nthree four");
  EXPECT_EQ(tagged("- one two three", 10), "\xE2\x80\xA2 one two\n  three");
  EXPECT_EQ(tagged("10. one two three", 10), "10. one\n    two\n    three");
  EXPECT_EQ(tagged("> one two three", 10), "<d>\xE2\x94\x82</> one two\n<d>\xE2\x94\x82 </>three");
  EXPECT_EQ(tagged("**one two three**", 10), "<b>one two</>\n<b>three</>");
  EXPECT_EQ(tagged("a\n\nb", 10), "a\n\nb");
  // Two columns each: a line may be broken between any two of them.
  EXPECT_EQ(tagged("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E", 4),
            "\xE6\x97\xA5\xE6\x9C\xAC\n\xE8\xAA\x9E");
  EXPECT_EQ(tagged("```\none two three four\n```\n", 10), "<c>one two three four</>\n");
}

TEST(ChatMarkdownTest, NothingTheModelWritesReachesTheTerminalAsControl) {
  EXPECT_EQ(render("a\033[31mb\007\b"), "a\xE2\x90\x9B[31mb\xE2\x90\x87\xE2\x90\x88");
  EXPECT_EQ(render("\xC2\x9B"
                   "31m"),
            "\xEF\xBF\xBD"
            "31m");
  EXPECT_EQ(render("x\r\ny\rz"), "x\ny\xE2\x90\x8Dz");
  EXPECT_EQ(render("\xE2\x80\xAE"
                   "abc"),
            "\xEF\xBF\xBD"
            "abc");
  EXPECT_EQ(render("a\xFFz"), "a\xEF\xBF\xBDz");
}

TEST(ChatMarkdownTest, HoldsBackLittle) {
  MarkdownRenderer renderer(0);
  std::string shown = renderer.feed("text ");
  EXPECT_EQ(shown, "text ");
  shown = renderer.feed("**" + std::string(MarkdownRenderer::kMaxHeld, 'x'));
  EXPECT_EQ(shown, "\033[1m" + std::string(MarkdownRenderer::kMaxHeld, 'x'));
  EXPECT_EQ(renderer.feed("** y"), "\033[0m y");
  EXPECT_EQ(renderer.finish(), "");
  // A single asterisk is taken for what it is.
  shown = renderer.feed("\n*" + std::string(MarkdownRenderer::kMaxHeld, 'x'));
  EXPECT_EQ(shown.substr(0, 3), "\n*x");
}

TEST(ChatMarkdownTest, BoldAndCodeWhoseEndIsFar) {
  std::string words = "a";
  while (words.size() < 200) words += " word";
  EXPECT_EQ(tagged("**" + words + "** x"), "<b>" + words + "</> x");
  EXPECT_EQ(tagged("`" + words + "` x"), "<c>" + words + "</> x");
  EXPECT_EQ(tagged("**" + words + "\nx"), "<b>" + words + "</>\nx");
}

// Everything that can go wrong at a border does so often in a text made of these.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kParts{"*",
                                               "**",
                                               "***",
                                               "_",
                                               "__",
                                               "`",
                                               "``",
                                               "```",
                                               "~~~",
                                               "\n",
                                               "\n\n",
                                               " ",
                                               "  ",
                                               "#",
                                               "# ",
                                               "- ",
                                               "1. ",
                                               "12",
                                               ".",
                                               "> ",
                                               "|",
                                               "\\",
                                               "a",
                                               "word",
                                               "two words",
                                               "---",
                                               "\xC3\xA9",
                                               "\r\n",
                                               "\033[m",
                                               "(",
                                               ")",
                                               "+",
                                               "\xE6\x97\xA5",
                                               "\xF0\x9F\x98\x80",
                                               "\xFF",
                                               "python\n"};
  std::string text;
  const std::size_t n = random() % 60;
  for (std::size_t i = 0; i < n; ++i) text += kParts[random() % kParts.size()];
  if (random() % 4 == 0) text.insert(text.size() / 2, std::string(random() % 200, 'x'));
  return text;
}

TEST(ChatMarkdownTest, OutputDoesNotDependOnThePieces) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random);
    const int width = i % 3 == 0 ? 0 : 8 + static_cast<int>(random() % 40);
    const std::string whole = render(text, width);
    MarkdownRenderer renderer(width);
    std::string pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = i % 2 == 0 ? 1 : 1 + random() % 9;
      pieces += renderer.feed(std::string_view(text).substr(at, n));
      at += n;
    }
    pieces += renderer.finish();
    ASSERT_EQ(pieces, whole) << testing::PrintToString(text) << ", width " << width;
    ASSERT_EQ(find_invalid_utf8(whole), std::string::npos) << testing::PrintToString(text);
  }
}

// Letters and digits are never lost: markers are.
TEST(ChatMarkdownTest, NoWordIsLost) {
  const auto letters = [](std::string_view text) {
    std::string kept;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\033') {
        i = text.find('m', i);
        continue;
      }
      if (std::isalnum(static_cast<unsigned char>(text[i]))) kept += text[i];
    }
    return kept;
  };
  std::mt19937 random(11);
  for (int i = 0; i < 1000; ++i) {
    std::string text = random_text(random);
    // The language of a fence is hidden; an escape character would confuse letters().
    for (const char* out : {"python\n", "\033", "```", "~~~"}) {
      for (std::size_t at = 0; (at = text.find(out)) != std::string::npos;)
        text.erase(at, std::string_view(out).size());
    }
    if (text.find("``") != std::string::npos) continue;
    EXPECT_EQ(letters(render(text)), letters(text)) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace moeflux::cli
