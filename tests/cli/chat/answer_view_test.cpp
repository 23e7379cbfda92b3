// What a reply looks like while it comes, and the line after it.
#include "cli/chat/answer_view.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

struct Shown {
  std::string text;
  AnswerView::Sink sink() {
    return [this](std::string_view piece) { text += piece; };
  }
};

TEST(ChatAnswerViewTest, PlainTextStaysAsItIs) {
  Shown shown;
  AnswerView view({}, shown.sink());
  view.reading(10, 5);
  view.thought("Let me think.");
  view.text("**a** ");
  view.text("b\033[m");
  view.finish();
  EXPECT_EQ(shown.text, "**a** b\xE2\x90\x9B[m\n");
}

TEST(ChatAnswerViewTest, ShownThoughtsAreDim) {
  Shown shown;
  AnswerView view({.think = ThinkView::Show, .color = true}, shown.sink());
  view.thought("one\n");
  view.thought("t\033wo");
  view.text("**x**\n");
  view.finish();
  EXPECT_EQ(shown.text, "\033[2mone\033[0m\n\033[2mt\xE2\x90\x9Bwo\033[0m\n\n\033[1mx\033[0m\n");
}

TEST(ChatAnswerViewTest, StatusLinesFitTheTerminal) {
  Shown shown;
  AnswerView view({.think = ThinkView::Fold, .live = true, .width = 12}, shown.sink());
  view.reading(123456, 0);
  EXPECT_EQ(shown.text, "\r\033[Kreading 12\u2026");
  shown.text.clear();
  view.call("\u65e5\u672c");
  EXPECT_EQ(shown.text, "\r\033[Kwriting a \u2026");
  ChatReply reply;
  reply.n_answer = 42;
  reply.answer_seconds = 2;
  reply.first_token_seconds = 0.5;
  EXPECT_EQ(stats_line(reply), "42 tokens, 21.0 tok/s, first after 0.50 s");
  EXPECT_EQ(stats_line(reply, 30), "42 tokens, 21.0 tok/s,\nfirst after 0.50 s");
  EXPECT_EQ(stats_line(reply, 5), "42 tokens,\n21.0 tok/s,\nfirst after 0.50 s");
}

TEST(ChatAnswerViewTest, FoldedThoughtsAreOneLineOnATerminal) {
  Shown shown;
  AnswerView view({.think = ThinkView::Fold, .live = true}, shown.sink());
  view.reading(12, 0);
  EXPECT_EQ(shown.text, "\r\033[Kreading 12 tokens");
  shown.text.clear();
  view.thought("one two");
  EXPECT_EQ(shown.text, "\r\033[Kthinking: 2 words, 0 s");
  shown.text.clear();
  view.thought(" thr");
  view.thought("ee\n");
  view.text("answer");
  EXPECT_EQ(shown.text, "\r\033[Kthought: 3 words, 0.0 s\nanswer");
  shown.text.clear();
  view.finish();
  EXPECT_EQ(shown.text, "\n");
  EXPECT_TRUE(view.has_text());
}

TEST(ChatAnswerViewTest, HiddenThoughtsLeaveNothing) {
  Shown shown;
  AnswerView view({.think = ThinkView::Hide, .live = true}, shown.sink());
  view.thought("one");
  view.finish();
  EXPECT_EQ(shown.text, "");
  EXPECT_FALSE(view.has_text());
}

TEST(ChatAnswerViewTest, CallsAreAnnouncedAndGone) {
  Shown shown;
  AnswerView view({.live = true}, shown.sink());
  view.call("shell\n");
  view.finish();
  EXPECT_EQ(shown.text, "\r\033[Kwriting a call of shell\xE2\x90\x8A\r\033[K");
}

TEST(ChatAnswerViewTest, StatsLine) {
  ChatReply reply;
  reply.n_answer = 42;
  reply.n_prompt = 100;
  reply.n_cached = 80;
  EXPECT_EQ(stats_line(reply), "42 tokens, prompt 100 with 80 cached");
  reply.answer_seconds = 10;
  reply.first_token_seconds = 0.25;
  reply.hits = 3;
  reply.misses = 1;
  EXPECT_EQ(stats_line(reply),
            "42 tokens, 4.2 tok/s, first after 0.25 s, prompt 100 with 80 cached, experts 75.0 % "
            "from memory");
}

}  // namespace
}  // namespace moeflux::cli
