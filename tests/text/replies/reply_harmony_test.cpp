// Messages in channels: what models write, what they write wrong, and every way of cutting it.
#include "text/replies/reply_harmony.h"

#include <gtest/gtest.h>

#include "text/grammar/grammar_support.h"
#include "text/replies/reply_history.h"
#include "text/replies/reply_support.h"

namespace moeflux {
namespace {

constexpr ReplyFormat kFormat = ReplyFormat::Harmony;

std::string harmony(std::string_view text) {
  return test::with_tools(kFormat, text);
}

const std::string kThought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
const std::string kToOslo = "{0 get_weather {\"city\": \"Oslo\"}}";

TEST(ReplyHarmony, ChannelsOfThoughtAndAnswer) {
  EXPECT_EQ(harmony(kThought + "<|channel|>final<|message|>Yes.\n"), "[Hm.]Yes.\n");
  EXPECT_EQ(harmony(kThought + "<|channel|>final<|message|>Yes.<|return|>"), "[Hm.]Yes.");
  EXPECT_EQ(harmony("<|channel|>final<|message|> a < b "), " a < b ");
  EXPECT_EQ(harmony("<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"
                    "<|channel|>final<|message|>Found."),
            "I will look.\n\nFound.");
  EXPECT_EQ(harmony(kThought + "<|channel|>analysis<|message|>So.<|end|>"), "[Hm.\n\nSo.]");
  EXPECT_EQ(test::parse(kFormat, {}, kThought + "<|channel|>final<|message|>Yes."), "[Hm.]Yes.")
      << "without tools, too";
}

TEST(ReplyHarmony, CallsToARecipientInEitherPlace) {
  const std::string arguments = "{\"city\": \"Oslo\"}";
  for (const char* head :
       {" to=functions.get_weather<|channel|>commentary json<|message|>",
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather code<|message|>",
        "<|channel|>commentary to=functions.get_weather<|message|>",
        "<|channel|>analysis to=functions.get_weather <|constrain|>json<|message|>",
        "<|channel|>final to=functions.get_weather<|message|>",
        "<|channel|>commentary<|channel|>commentary to=functions.get_weather json<|message|>",
        "<|channel|>commentary to=assistant<|channel|>commentary to=functions.get_weather"
        "<|message|>",
        " to=functions.get_weather <|constrain|>json<|message|>",
        " to=get_weather<|channel|>commentary<|message|>"}) {
    for (const char* end : {"", "<|call|>", "<|end|>", "<|return|>"}) {
      EXPECT_EQ(harmony(head + arguments + end), kToOslo) << head << end;
      EXPECT_EQ(harmony(kThought + head + arguments + end), "[Hm.]" + kToOslo) << head << end;
    }
  }
  EXPECT_EQ(harmony(" to=functions.now<|channel|>commentary json<|message|> {} \n<|call|>"),
            "{0 now {}}");
  EXPECT_EQ(harmony("<|channel|>commentary to=functions.now<|message|><|call|>"), "{0 now {}}");
  EXPECT_EQ(harmony("<|channel|>commentary to=functions.later<|message|>{}"), "{0 later {}}")
      << "names are not checked";
}

TEST(ReplyHarmony, PreambleAndSeveralCalls) {
  EXPECT_EQ(
      harmony(kThought + "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
                         "<|channel|>commentary to=functions.now json<|message|>{}<|call|>"
                         "<|start|>assistant to=functions.get_weather<|channel|>commentary json"
                         "<|message|>{\"city\": \"a\nb\"}<|call|>"),
      "[Hm.]I look.{0 now {}}{1 get_weather {\"city\": \"a\\nb\"}}");
}

TEST(ReplyHarmony, StrayHeads) {
  EXPECT_EQ(harmony("<|channel|>commentary<|channel|>analysis<|message|>Hm.<|end|>"), "[Hm.]");
  EXPECT_EQ(harmony("<|channel|>commentary to=assistant<|channel|>final<|message|>Yes."), "Yes.");
  EXPECT_EQ(harmony("<|channel|>commentary to=assistant<|message|>Yes."), "Yes.");
  EXPECT_EQ(harmony("<|start|>assistant<|channel|>final<|message|>Yes."), "Yes.");
  EXPECT_EQ(harmony("<|channel|>final<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
            "Yes.");
  EXPECT_EQ(harmony("<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes."),
            "[Hm.]Yes.")
      << "without <|end|>";
  EXPECT_EQ(harmony("<|message|>Yes."), "Yes.");
  EXPECT_EQ(harmony("<|channel|>poetry<|message|>Yes."), "Yes.");
  EXPECT_EQ(harmony("assistant<|channel|>final<|message|>Yes."), "Yes.");
}

TEST(ReplyHarmony, ToolsNobodyHasOfferedAreNotCalled) {
  EXPECT_EQ(harmony("<|channel|>commentary to=browser.search<|message|>{\"query\": 1}<|call|>"),
            "");
  EXPECT_EQ(harmony("<|channel|>analysis to=python code<|message|>1 + 1<|end|><|start|>assistant"
                    "<|channel|>final<|message|>2"),
            "2");
  EXPECT_EQ(harmony("<|channel|>final<|message|>Yes.<|end|><|start|>user<|message|>No.<|end|>"
                    "<|start|>functions.now to=assistant<|channel|>commentary<|message|>1<|end|>"),
            "Yes.");
  const std::string call = " to=functions.now<|channel|>commentary json<|message|>{}<|call|>";
  EXPECT_EQ(test::parse(kFormat, {}, kThought + call), "[Hm.]") << "the request has no tools";
}

TEST(ReplyHarmony, TextThatIsInNoChannelIsContent) {
  for (const std::string text : {"Hello.", " Hello,\n<b>", "to be", "to", "assistants",
                                 "assistant is", "<|chan>", "<tag>", "<", " ", "", "to=a\nb"}) {
    EXPECT_EQ(harmony(text), text);
  }
  EXPECT_EQ(harmony("Hello.<|end|>"), "Hello.");
  EXPECT_EQ(harmony("<|channel|>final<|message|>a <|en"), "a <|en");
  EXPECT_EQ(harmony("<|channel|>final<|message|>a<|end|>\n"), "a");
  EXPECT_EQ(harmony("<|channel|>final"), "");
  const std::string filler(600, 'x');
  EXPECT_EQ(harmony("<|channel|>" + filler + "<|channel|>final<|message|>a"), filler + "\n\na");
  EXPECT_EQ(harmony("<|start|>" + filler), filler);
}

TEST(ReplyHarmony, ArgumentsThatAreNoObject) {
  const std::string head = " to=functions.now<|channel|>commentary json<|message|>";
  EXPECT_EQ(harmony(head + "now!<|call|>"), "{0 now now!!}");
  EXPECT_EQ(harmony(head + "[1]<|call|>"), "{0 now [1]!}");
  EXPECT_EQ(harmony(head + "{\"a\": oops}<|call|>"), "{0 now {\"a\": oops}!}");
  EXPECT_EQ(harmony(head + "{\"a\": 1<|call|>"), "{0 now {\"a\": 1!}");
  EXPECT_EQ(harmony(head + "{\"a\": 1}} and more<|call|>"), "{0 now {\"a\": 1}}");

  ReplyOptions options;
  options.tools = test::reply_tools();
  options.stream_arguments = false;
  EXPECT_EQ(test::parse(kFormat, options, kThought + head + "{\"a\": 1}"),
            "[Hm.]{0 now {\"a\": 1}}");
  EXPECT_EQ(test::parse(kFormat, options, head + "{oops}<|call|>"), head + "{oops}");
}

TEST(ReplyHarmony, PromptsThatOpenAChannel) {
  ReplyOptions options;
  options.opens_thought = true;
  EXPECT_EQ(test::parse(kFormat, options,
                        "Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
                        "Yes."),
            "[Hm.]Yes.");
  EXPECT_EQ(harmony("Yes.<|return|>"), "Yes.") << "as after <|channel|>final<|message|>";
  options.opens_thought = false;
  options.reasoning = false;
  EXPECT_EQ(test::parse(kFormat, options, kThought + "<|channel|>final<|message|>Yes."),
            "<|channel|>analysis<|message|>Hm.<|end|>Yes.")
      << "thoughts as content";
}

TEST(ReplyHarmony, PassesOnWhatIsCertain) {
  const auto parser = make_reply_parser(kFormat, {.tools = test::reply_tools()});
  const auto feed = [&](std::string_view text) { return test::show(parser->feed(text)); };
  EXPECT_EQ(feed("<|channel|>ana"), "");
  EXPECT_EQ(feed("lysis<|message|>Let"), "[Let]");
  EXPECT_EQ(feed(" me <|"), "[ me ]");
  EXPECT_EQ(feed("end|><|start|>assistant"), "");
  EXPECT_EQ(feed("<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"),
            "");
  EXPECT_EQ(feed("{\"city\": \"Os"), "{0 get_weather {\"city\": \"Os");
  EXPECT_EQ(feed("lo\"}"), "lo\"}");
  EXPECT_EQ(test::show(parser->finish()), "}");
}

// A limit or a stop string ends the reply after every byte.
TEST(ReplyHarmony, CutAnywhere) {
  const std::string head =
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>";
  const std::string arguments = "{\"city\": \"Oslo\"}";
  const std::string text = kThought + head + arguments;
  ReplyOptions options;
  options.tools = test::reply_tools();
  for (const bool streamed : {true, false}) {
    options.stream_arguments = streamed;
    for (std::size_t n = 0; n <= text.size(); ++n) {
      const auto parser = make_reply_parser(kFormat, options);
      Reply reply;
      for (const char c : text.substr(0, n)) reply.add(parser->feed({&c, 1}));
      reply.add(parser->finish(ReplyEnd::Cut));
      ASSERT_EQ(reply.content, "") << text.substr(0, n);
      ASSERT_TRUE(std::string_view("Hm.").starts_with(reply.reasoning)) << reply.reasoning;
      const std::size_t n_head = kThought.size() + head.size();
      ASSERT_EQ(reply.calls.size(), n > n_head ? 1u : 0u) << text.substr(0, n);
      if (reply.calls.empty()) continue;
      ASSERT_EQ(reply.calls[0].arguments, arguments.substr(0, n - n_head));
      ASSERT_EQ(reply.calls[0].complete, n == text.size());
    }
  }
}

TEST(ReplyHarmony, AnythingAnyhowCut) {
  const std::vector<std::string> atoms = {
      "<|start|>",     "<|channel|>",   "<|message|>", "<|end|>",  "<|call|>",   "<|return|>",
      "<|constrain|>", "assistant",     "user",        "analysis", "commentary", "final",
      " to=",          "functions.now", "browser",     " json",    "{",          "}",
      "\"a\": 1",      "text",          "\n",          " ",        "<",          "<|",
      "\xC3\xA9"};
  test::Random random(4);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (std::int64_t n = random.integer(1, 16); n > 0; --n) {
      text += atoms[static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(atoms.size()) - 1))];
    }
    ReplyOptions options;
    if (random.chance(0.8)) options.tools = test::reply_tools();
    options.opens_thought = random.chance(0.2);
    options.stream_arguments = random.chance(0.7);
    const std::string whole =
        test::show(test::parse_cut(kFormat, options, text, text.size(), nullptr));
    ASSERT_EQ(test::show(test::parse_cut(kFormat, options, text, 0, &random)), whole) << text;
    ASSERT_EQ(test::show(test::parse_cut(kFormat, options, text, 1, nullptr)), whole) << text;
  }
}

TEST(ReplyHarmony, LongRepliesTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "<|channel|>commentary <|start|>assistant ";
  EXPECT_TRUE(test::parse_cut(kFormat, {}, text, 3, nullptr).empty());
}

// ---- grammars

Json tools() {
  return normalize_tools(test::reply_tools());
}

test::GrammarRun run(const ToolGrammar& grammar) {
  return test::GrammarRun(parse_gbnf(grammar.gbnf, grammar.schemas));
}

TEST(ReplyHarmony, DemandedCallsMayFollowAThought) {
  test::GrammarRun calls =
      run(tool_grammar(kFormat, tools(), {.choice = {ToolChoice::Mode::Required}}));
  for (const std::string& text : std::vector<std::string>{
           " to=functions.now<|channel|>commentary json<|message|>{}",
           "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
           "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"Oslo\"}"}) {
    EXPECT_TRUE(calls.accepts(text)) << text << "\nup to " << calls.reach(text);
    EXPECT_TRUE(calls.accepts(kThought + text)) << text << "\nup to " << calls.reach(text);
    EXPECT_EQ(parse_reply(kFormat, {.tools = tools()}, kThought + text).calls.size(), 1u) << text;
  }
  EXPECT_TRUE(calls.begins("<|channel|>analysis<|message|>It is < 3 <|en so"));
  EXPECT_FALSE(calls.begins("<|channel|>final"));
  EXPECT_FALSE(calls.begins(" to=functions.later"));
  EXPECT_FALSE(calls.begins(" to=functions.now<|channel|>commentary json<|message|>{\"a\""));
  EXPECT_FALSE(
      calls.begins(" to=functions.get_weather<|channel|>commentary json<|message|>{\"days\": \""));
  EXPECT_FALSE(calls.begins("Hello"));
  EXPECT_FALSE(calls.accepts(""));

  test::GrammarRun named =
      run(tool_grammar(kFormat, tools(), {.choice = {ToolChoice::Mode::Named, "now"}}));
  EXPECT_FALSE(named.begins(" to=functions.get"));
  EXPECT_TRUE(named.begins(" to=functions.now"));

  test::GrammarRun inside = run(tool_grammar(
      kFormat, tools(), {.choice = {ToolChoice::Mode::Required}, .opens_thought = true}));
  const std::string now = " to=functions.now<|channel|>commentary<|message|>{}";
  EXPECT_TRUE(inside.accepts("Hm.<|end|><|start|>assistant" + now));
  EXPECT_FALSE(inside.accepts(now));
}

TEST(ReplyHarmony, CallsOfItsOwnAccordBeginWithARecipient) {
  const ToolGrammar grammar = tool_grammar(kFormat, tools(), {});
  EXPECT_EQ(grammar.starts_after, " to=functions.");
  EXPECT_FALSE(grammar.repeats);
  test::GrammarRun calls = run(grammar);
  EXPECT_TRUE(calls.accepts("now<|channel|>commentary json<|message|>{}"));
  EXPECT_TRUE(calls.accepts("now <|constrain|>json<|message|>{}"));
  EXPECT_TRUE(calls.accepts("get_weather<|message|>{\"days\": 3}"));
  EXPECT_FALSE(calls.begins("later"));
  EXPECT_FALSE(calls.begins("get_weather<|message|>{\"days\": \"x"));
}

TEST(ReplyHarmony, AnswersOfAFormMayFollowAThought) {
  test::GrammarRun answer(
      parse_gbnf(harmony_answer_grammar(), {{"value", Json{{"type", "integer"}}}}));
  EXPECT_TRUE(answer.accepts("<|channel|>final<|message|>42"));
  EXPECT_TRUE(answer.accepts(kThought + "<|channel|>final<|message|>42"));
  EXPECT_FALSE(answer.begins("<|channel|>final<|message|>x"));
  EXPECT_FALSE(answer.begins("4"));
}

}  // namespace
}  // namespace moeflux
