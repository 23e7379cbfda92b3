#include "text/replies/reply_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/replies/reply_support.h"

namespace moeflux {
namespace {

using test::ds;
using test::parse;
using test::parse_cut;
using test::show;
using test::with_tools;

Json tools() {
  return test::reply_tools();
}

// ---- thoughts and content

TEST(ReplyParser, PlainTextIsUntouched) {
  for (const std::string text : {"", " Hello,\n\n<b>world</b> < 3 <tool_call>{}</tool_call>\n "}) {
    EXPECT_EQ(parse(ReplyFormat::Plain, {}, text), text);
    EXPECT_EQ(parse(ReplyFormat::QwenXml, {}, text), text) << "no tools were given";
  }
}

TEST(ReplyParser, ThoughtsAreTakenApartFromContent) {
  ReplyOptions open;
  open.opens_thought = true;
  EXPECT_EQ(parse(ReplyFormat::Plain, {}, "<think>\nHm.\nSo.\n</think>\n\n  Yes.\n"),
            "[Hm.\nSo.]  Yes.\n");
  EXPECT_EQ(parse(ReplyFormat::Plain, open, "Hm.\n</think>\n\nYes."), "[Hm.]Yes.");
  EXPECT_EQ(parse(ReplyFormat::Plain, open, "<think>\nHm.</think>Yes."), "[Hm.]Yes.");
  EXPECT_EQ(parse(ReplyFormat::Plain, open, "\n</think>\n\nYes."), "Yes.");
  EXPECT_EQ(parse(ReplyFormat::Plain, open, "Never closed </thin"), "[Never closed </thin]");
  EXPECT_EQ(parse(ReplyFormat::Plain, {}, "The tag <think> opens</think>."),
            "The tag <think> opens</think>.");
}

TEST(ReplyParser, ThoughtsStayInContentWhenAskedTo) {
  ReplyOptions options;
  options.reasoning = false;
  EXPECT_EQ(parse(ReplyFormat::Plain, options, "<think>a</think>b"), "<think>a</think>b");
}

TEST(ReplyParser, PassesOnWhatIsCertain) {
  ReplyOptions options;
  options.tools = tools();
  const auto parser = make_reply_parser(ReplyFormat::QwenXml, options);
  EXPECT_EQ(show(parser->feed("Hello")), "Hello");
  EXPECT_EQ(show(parser->feed(" <tool")), "");
  EXPECT_EQ(show(parser->feed("box>")), " <toolbox>");
  EXPECT_EQ(show(parser->feed("\n<tool_call>\n<function=get_weather>\n")), "");
  EXPECT_EQ(show(parser->feed("<parameter=city>\nNew")), "{0 get_weather {\"city\":\"New");
  EXPECT_EQ(show(parser->feed(" \"York\"")), " \\\"York\\\"");
  EXPECT_EQ(show(parser->feed("\n</parameter>\n<parameter=days>\n1")), "\",\"days\":");
  EXPECT_EQ(show(parser->feed("2\n</parameter>\n</function>")), "12}}");
  EXPECT_EQ(show(parser->feed("\n</tool_call>")), "");
  EXPECT_EQ(show(parser->finish()), "");
}

TEST(ReplyParser, ThoughtBeforeCall) {
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml,
                       "I need it.\n</think>\n\nLet me see.\n\n<tool_call>\n<function=now>\n"
                       "</function>\n</tool_call>",
                       true),
            "[I need it.]Let me see.{0 now {}}");
}

TEST(ReplyParser, CallInAThoughtCountsOnlyAtTheEnd) {
  const std::string call = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml, "I call.\n" + call + "\n", true),
            "[I call.]{0 now {}}");
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml, "I call.\n" + call + call, true),
            "[I call.]{0 now {}}{1 now {}}");
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml, "I could " + call + " or not.\n</think>\n\nNo.", true),
            "[I could " + call + " or not.]No.");
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml, "Write " + call + "\n</think>\n\n" + call, true),
            "[Write " + call + "]{0 now {}}");
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml, "The tag <tool_call> opens", true),
            "[The tag <tool_call> opens]");
  EXPECT_EQ(with_tools(ReplyFormat::QwenXml,
                       "Now <tool_call>\n<function=get_weather>\n<parameter=city>\nOslo", true),
            "[Now <tool_call>\n<function=get_weather>\n<parameter=city>\nOslo]");
}

// ---- not streamed

TEST(ReplyParser, WithheldCallsAreCompleteOrContent) {
  ReplyOptions options;
  options.tools = tools();
  options.stream_arguments = false;
  const auto withheld = [&](std::string_view text) {
    return parse(ReplyFormat::QwenXml, options, text);
  };
  const std::string good = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string cut = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo";
  EXPECT_EQ(withheld("Yes.\n" + good + good), "Yes.{0 now {}}{1 now {}}");
  EXPECT_EQ(withheld("Yes.\n" + cut), "Yes.\n" + cut);
  EXPECT_EQ(withheld(good + "\n" + cut), "{0 now {}}\n" + cut);
  EXPECT_EQ(parse(ReplyFormat::Hermes, options,
                  "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}</tool_call>"),
            "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}</tool_call>");
}

// ---- cut off

struct CutCase {
  ReplyFormat format;
  std::string text;     // "Yes.", a call of get_weather and one of now
  std::string opening;  // of its first call, up to where the arguments begin
};

std::vector<CutCase> cut_cases() {
  const std::string tagged =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
      "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string hermes =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
      "\"Oslo\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string marked = ds(
      "<|tool~calls~begin|><|tool~call~begin|>get_weather<|tool~sep|>{\"city\": \"Oslo\"}"
      "<|tool~call~end|><|tool~call~begin|>now<|tool~sep|>{}<|tool~call~end|><|tool~calls~end|>");
  const std::string fenced =
      ds("<|tool~calls~begin|><|tool~call~begin|>function<|tool~sep|>get_weather\n```json\n"
         "{\"city\": \"Oslo\"}\n```<|tool~call~end|>\n<|tool~call~begin|>function<|tool~sep|>now\n"
         "```json\n{}\n```<|tool~call~end|><|tool~calls~end|>");
  const std::string dsml =
      ds("<|DSML|function_calls>\n<|DSML|invoke name=\"get_weather\">\n"
         "<|DSML|parameter name=\"city\" string=\"true\">Oslo</|DSML|parameter>\n</|DSML|invoke>\n"
         "<|DSML|invoke name=\"now\">\n</|DSML|invoke>\n</|DSML|function_calls>");
  const std::string kimi =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
      "<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_call_begin|>"
      "functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
  const std::string glm =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>\n"
      "<tool_call>now\n</tool_call>";
  const std::string minimax =
      "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo"
      "</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>";
  std::string v4 = dsml;
  for (std::size_t at = 0; (at = v4.find("function_calls")) != std::string::npos;)
    v4.replace(at, 14, "tool_calls");
  const std::string gemma =
      "<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>}<tool_call|><|tool_call>call:now{}"
      "<tool_call|>";
  return {{ReplyFormat::Gemma, gemma, "get_weather{"},
          {ReplyFormat::Glm, glm, "<arg_key>"},
          {ReplyFormat::MiniMax, minimax, "<parameter name=\""},
          {ReplyFormat::DeepSeekV4, v4, ds("<|DSML|parameter name=\"")},
          {ReplyFormat::QwenXml, tagged, "<parameter="},
          {ReplyFormat::Hermes, hermes, "\"arguments\": {"},
          {ReplyFormat::DeepSeek, marked, "{"},
          {ReplyFormat::DeepSeekFenced, fenced, "{"},
          {ReplyFormat::DeepSeekXml, dsml, ds("<|DSML|parameter name=\"")},
          {ReplyFormat::Kimi, kimi, "{"}};
}

Reply cut_reply(ReplyFormat format, const ReplyOptions& options, std::string_view text) {
  const auto parser = make_reply_parser(format, options);
  Reply reply;
  for (const char c : text) reply.add(parser->feed({&c, 1}));
  reply.add(parser->finish(ReplyEnd::Cut));
  return reply;
}

TEST(ReplyParser, HalfACallIsNoContent) {
  ReplyOptions options;
  options.tools = tools();
  for (const CutCase& each : cut_cases()) {
    const std::string text = "Yes.\n\n" + each.text;
    const std::size_t announced = text.find(each.opening) + each.opening.size();
    for (const bool streamed : {true, false}) {
      options.stream_arguments = streamed;
      for (std::size_t n = 4; n <= text.size(); ++n) {
        const Reply reply = cut_reply(each.format, options, text.substr(0, n));
        const std::string where = fmt::format("{} streamed {}", text.substr(0, n), streamed);
        ASSERT_EQ(reply.content, n > 6 ? "Yes." : text.substr(0, n)) << where;
        ASSERT_EQ(reply.calls.empty(), n < announced) << where;
        if (n < announced) continue;
        // A beginning of the arguments, which a client cannot take for all of them.
        ASSERT_EQ(reply.calls[0].name, "get_weather") << where;
        const Json arguments = Json::parse(reply.calls[0].arguments, nullptr, false);
        ASSERT_EQ(reply.calls[0].complete, arguments == Json({{"city", "Oslo"}})) << where;
        ASSERT_EQ(reply.calls[0].complete, !arguments.is_discarded()) << where;
      }
      EXPECT_EQ(cut_reply(each.format, options, text).calls.size(), 2u) << text;
    }
  }
}

TEST(ReplyParser, HalfAMarkerIsNoContent) {
  ReplyOptions options;
  options.tools = tools();
  EXPECT_EQ(cut_reply(ReplyFormat::QwenXml, options, "a < b\n<tool_ca").content, "a < b");
  EXPECT_EQ(cut_reply(ReplyFormat::QwenXml, options, "<thi").content, "");
  EXPECT_EQ(cut_reply(ReplyFormat::Plain, {}, "a <tool_ca").content, "a <tool_ca");
  options.opens_thought = true;
  EXPECT_EQ(cut_reply(ReplyFormat::QwenXml, options, "Hm.\n</thi").reasoning, "Hm.");
  const Reply in_thought =
      cut_reply(ReplyFormat::QwenXml, options,
                "Hm.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOs");
  EXPECT_EQ(in_thought.reasoning, "Hm.");
  EXPECT_EQ(in_thought.content, "");
  ASSERT_EQ(in_thought.calls.size(), 1u);
  EXPECT_EQ(in_thought.calls[0].arguments, "{\"city\":\"Os");
  EXPECT_FALSE(in_thought.calls[0].complete);
}

// Random mixtures of what formats are made of: no cut changes the result, calls do not overlap, and
// complete ones have JSON objects for arguments.
TEST(ReplyParser, AnythingAnyhowCut) {
  const std::vector<std::string> atoms = {"<tool_call>",
                                          "</tool_call>",
                                          "\n",
                                          " ",
                                          "<function=get_weather>",
                                          "<function=",
                                          "</function>",
                                          "<parameter=city>",
                                          "<parameter=days>",
                                          "</parameter>",
                                          "{",
                                          "}",
                                          "\"name\"",
                                          ": ",
                                          "\"now\"",
                                          "\"arguments\"",
                                          ", ",
                                          "[1]",
                                          "2",
                                          "true",
                                          "<think>",
                                          "</think>",
                                          "text",
                                          "\\",
                                          "\"",
                                          "<",
                                          "{\"name\": \"now\", \"arguments\": {\"a\": 1}}",
                                          ds("<|tool~calls~begin|>"),
                                          ds("<|tool~call~begin|>now<|tool~sep|>"),
                                          ds("<|tool~call~end|>"),
                                          ds("<|tool~calls~end|>"),
                                          "```json\n",
                                          "<tool_call>now",
                                          "<arg_key>city</arg_key>",
                                          "<arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "<|tool_call>call:now{",
                                          "<tool_call|>",
                                          "<|\"|>",
                                          "a:",
                                          "<minimax:tool_call>",
                                          "<invoke name=\"now\">",
                                          "<parameter name=\"city\">",
                                          "</invoke>",
                                          "\xC3\xA9"};
  test::Random random(6);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::int64_t n = random.integer(1, 14); n > 0; --n) {
      text += atoms[static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(atoms.size()) - 1))];
    }
    ReplyOptions options;
    options.tools = tools();
    options.opens_thought = random.chance(0.3);
    options.stream_arguments = random.chance(0.7);
    for (const ReplyFormat format :
         {ReplyFormat::Hermes, ReplyFormat::QwenXml, ReplyFormat::DeepSeek, ReplyFormat::Glm,
          ReplyFormat::MiniMax, ReplyFormat::Gemma}) {
      const ReplyPieces whole = parse_cut(format, options, text, text.size(), nullptr);
      const ReplyPieces cut = parse_cut(format, options, text, 0, &random);
      ASSERT_EQ(show(cut), show(whole)) << text;
      Reply reply;
      reply.add(whole);
      for (const ToolCall& call : reply.calls) {
        ASSERT_TRUE(call.complete || options.stream_arguments) << text;
        if (!call.complete) continue;
        ASSERT_TRUE(Json::parse(call.arguments, nullptr, false).is_object()) << text;
      }
    }
  }
}

TEST(ReplyParser, LongRepliesTakeLinearTime) {
  std::string text = "<tool_call>\n<function=get_weather>\n<parameter=city>\n";
  for (int i = 0; i < 20'000; ++i) text += "\n</parameter> <tool_call> ";
  EXPECT_FALSE(parse_cut(ReplyFormat::QwenXml, {.tools = tools()}, text, 3, nullptr).empty());
  text = "<tool_call>{\"name\": ";
  for (int i = 0; i < 20'000; ++i) text += "<tool_call>{\"name\": ";
  EXPECT_FALSE(parse_cut(ReplyFormat::Hermes, {.tools = tools()}, text, 3, nullptr).empty());
}

}  // namespace
}  // namespace moeflux
