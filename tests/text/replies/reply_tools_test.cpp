#include "text/replies/reply_tools.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/grammar_support.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_history.h"

namespace moeflux {
namespace {

using Mode = ToolChoice::Mode;
using test::expect_error;

Json tools() {
  return normalize_tools(Json::parse(R"([{"type": "function", "function": {"name": "get_weather",
      "parameters": {"type": "object", "required": ["city", "days"], "properties": {
        "city": {"type": "string"}, "unit": {"enum": ["C", "F"]}, "days": {"$ref": "#/$defs/n"},
        "exact": {"type": "boolean"}}, "$defs": {"n": {"type": "integer"}}}}},
      {"type": "function", "function": {"name": "now"}}])"));
}

ToolChoice choice(std::string_view json) {
  return read_tool_choice(parse_json(json, "test"), tools());
}

TEST(ReplyTools, ReadsChoices) {
  EXPECT_EQ(choice("null").mode, Mode::Auto);
  EXPECT_EQ(choice("\"auto\"").mode, Mode::Auto);
  EXPECT_EQ(choice("\"none\"").mode, Mode::None);
  EXPECT_EQ(choice("\"required\"").mode, Mode::Required);
  EXPECT_EQ(choice(R"({"type": "any"})").mode, Mode::Required);
  for (const char* named :
       {R"({"type": "function", "function": {"name": "now"}})",
        R"({"type": "function", "name": "now"})", R"({"type": "tool", "name": "now"})"}) {
    EXPECT_EQ(choice(named).mode, Mode::Named);
    EXPECT_EQ(choice(named).name, "now");
  }
}

TEST(ReplyTools, RefusesChoicesThatCannotBeKept) {
  expect_error(Errc::BadInput, {"tool_choice", "sometimes"}, [] { choice("\"sometimes\""); });
  expect_error(Errc::BadInput, {"tool_choice"}, [] { choice("7"); });
  expect_error(Errc::BadInput, {"function.name"}, [] { choice(R"({"type": "function"})"); });
  expect_error(Errc::BadInput, {"\"later\"", "tools"},
               [] { choice(R"({"type": "tool", "name": "later"})"); });
  expect_error(Errc::BadInput, {"no \"tools\""}, [] { read_tool_choice("required", nullptr); });
}

TEST(ReplyTools, ShowsTheTemplateWhatMayBeCalled) {
  EXPECT_TRUE(tools_to_render({Mode::None}, tools()).is_null());
  EXPECT_EQ(tools_to_render({Mode::Auto}, tools()), tools());
  EXPECT_EQ(tools_to_render({Mode::Named, "now"}, tools()), Json::array({tools()[1]}));
  EXPECT_TRUE(tools_to_render({Mode::Auto}, Json::array()).is_null());
}

// ---- grammars

test::GrammarRun run(const ToolGrammar& grammar) {
  return test::GrammarRun(parse_gbnf(grammar.gbnf, grammar.schemas));
}

ToolGrammar grammar(ReplyFormat format, const ToolGrammarOptions& options) {
  return tool_grammar(format, tools(), options);
}

std::string qwen_call(const std::string& parameters) {
  return "<tool_call>\n<function=get_weather>\n" + parameters + "</function>\n</tool_call>";
}
const std::string kCity = "<parameter=city>\nNew </param> York\n</parameter>\n";
const std::string kDays = "<parameter=days>\n12\n</parameter>\n";

// A parameter stands alone in its tags; its references lead where the whole schema says.
TEST(ReplyTools, ParametersReferToTheWholeSchema) {
  const Json nested = normalize_tools(Json::parse(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "required": ["next"], "properties": {
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "same/": {"$ref": "#/properties/next"}},
        "additionalProperties": false}}}])"));
  test::GrammarRun calls =
      run(tool_grammar(ReplyFormat::QwenXml, nested, {.choice = {Mode::Required}}));
  const auto call = [](const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=next>\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  EXPECT_TRUE(calls.accepts(call("null")));
  EXPECT_TRUE(calls.accepts(call(R"({"next": {"next": null}, "same/": null})")));
  EXPECT_FALSE(calls.begins(call(R"({"next": 1})")));
}

TEST(ReplyTools, QwenGrammarKeepsToTheSchema) {
  test::GrammarRun calls = run(grammar(ReplyFormat::QwenXml, {.choice = {Mode::Required}}));
  const std::string now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  EXPECT_TRUE(calls.accepts(qwen_call(kCity + kDays)));
  EXPECT_TRUE(calls.accepts(now));
  EXPECT_TRUE(calls.accepts(now + "\n" + qwen_call(kCity + kDays)));
  EXPECT_TRUE(calls.accepts(qwen_call(kCity + "<parameter=unit>\nC\n</parameter>\n" + kDays +
                                      "<parameter=exact>\ntrue\n</parameter>\n")));
  EXPECT_FALSE(calls.accepts(qwen_call(kCity))) << "days are required";
  EXPECT_FALSE(calls.begins(qwen_call(kCity + "<parameter=unit>\nK")));
  EXPECT_FALSE(calls.begins(qwen_call(kCity + "<parameter=days>\nx")));
  EXPECT_FALSE(calls.begins("<tool_call>\n<function=later>"));
  EXPECT_FALSE(calls.begins("Hello"));
  EXPECT_FALSE(calls.accepts(""));
}

TEST(ReplyTools, OneCallOnlyAndOneToolOnly) {
  const std::string now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  test::GrammarRun one =
      run(grammar(ReplyFormat::QwenXml, {.choice = {Mode::Required}, .parallel = false}));
  EXPECT_TRUE(one.accepts(now));
  EXPECT_FALSE(one.begins(now + "\n"));
  test::GrammarRun named = run(grammar(ReplyFormat::QwenXml, {.choice = {Mode::Named, "now"}}));
  EXPECT_TRUE(named.accepts(now));
  EXPECT_FALSE(named.begins("<tool_call>\n<function=g"));
}

TEST(ReplyTools, GrammarsBeginWhereTheirTextBegins) {
  const ToolGrammar automatic = grammar(ReplyFormat::QwenXml, {});
  EXPECT_EQ(automatic.starts_after, "<tool_call>");
  EXPECT_TRUE(automatic.repeats);
  EXPECT_TRUE(run(automatic).accepts("\n<function=now>\n</function>\n</tool_call>"));
  EXPECT_FALSE(grammar(ReplyFormat::QwenXml, {.parallel = false}).repeats);

  const ToolGrammar after_thought =
      grammar(ReplyFormat::QwenXml, {.choice = {Mode::Required}, .opens_thought = true});
  EXPECT_EQ(after_thought.starts_after, "</think>");
  EXPECT_TRUE(
      run(after_thought).accepts("\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>"));
  EXPECT_EQ(grammar(ReplyFormat::QwenXml, {.choice = {Mode::Required}}).starts_after, "");
}

// Whatever its parser reads without complaint, as far as a grammar can say that.
TEST(ReplyTools, CallsThatAModelMakesByItselfAreFreeInBlanksAndOrder) {
  test::GrammarRun qwen = run(grammar(ReplyFormat::QwenXml, {}));
  const auto call = [](const std::string& parameters) {
    return "\n<function=get_weather>\n" + parameters + "</function>\n</tool_call>";
  };
  const std::string unit = "<parameter=unit>\nC\n</parameter>\n";
  for (const std::string& text :
       {call(kCity + kDays), call(kDays + kCity), call(unit + kDays + kCity),
        call(kDays + unit + kCity + "<parameter=exact>\ntrue\n</parameter>\n"),
        std::string("<function=get_weather><parameter=days>3</parameter><parameter=city>Oslo"
                    "</parameter></function></tool_call>")}) {
    EXPECT_TRUE(qwen.accepts(text)) << text << "\nup to " << qwen.reach(text);
    const Reply reply = parse_reply(ReplyFormat::QwenXml, {.tools = tools()}, "<tool_call>" + text);
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_TRUE(reply.calls[0].complete) << text;
  }
  EXPECT_FALSE(qwen.begins(call(kCity + "</function>"))) << "days are required";
  EXPECT_FALSE(qwen.begins(call(kCity + kCity))) << "each comes once";
  EXPECT_FALSE(qwen.begins(call(unit + kCity + unit)));
  EXPECT_FALSE(qwen.begins(call("<parameter=colour>")));
  EXPECT_FALSE(qwen.begins(call("<parameter=unit>\n C"))) << "a blank would be part of the text";
  EXPECT_FALSE(qwen.begins("\n<function=later>"));
  EXPECT_FALSE(qwen.begins("\nI could call a function."));
  EXPECT_FALSE(qwen.begins(call(kCity + kDays) + "\n")) << "what follows is free again";

  test::GrammarRun hermes = run(grammar(ReplyFormat::Hermes, {}));
  for (const char* text :
       {"\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        "{\"name\":\"now\",\"arguments\":{ }}</tool_call>",
        "\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Oslo\",\n"
        "    \"days\": 2\n  }\n}\n</tool_call>"})
    EXPECT_TRUE(hermes.accepts(text)) << text << "\nup to " << hermes.reach(text);
  EXPECT_FALSE(hermes.begins("\n{\"name\": \"later\""));

  const MarkedMarkup& markup = marked_markup(ReplyFormat::DeepSeek);
  const std::string one =
      fmt::format("{}now{}{{}}{}", markup.call_begin, markup.separator, markup.call_end);
  test::GrammarRun deepseek = run(grammar(ReplyFormat::DeepSeek, {}));
  EXPECT_TRUE(deepseek.accepts(one + one + std::string(markup.section_end)));
  EXPECT_TRUE(deepseek.accepts(one + "\n" + one + "\n" + std::string(markup.section_end)));
  EXPECT_FALSE(deepseek.accepts(one));
}

TEST(ReplyTools, GlmAndMiniMaxCallsOfTheirOwnAccord) {
  for (const ReplyFormat format : {ReplyFormat::Glm, ReplyFormat::GlmCompact}) {
    const ToolGrammar automatic = grammar(format, {});
    EXPECT_EQ(automatic.starts_after, "<tool_call>");
    test::GrammarRun glm = run(automatic);
    for (const char* text :
         {"now</tool_call>", "now\n</tool_call>",
          "get_weather\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>city</arg_key>"
          "<arg_value>a < b</arg_value></tool_call>"})
      EXPECT_TRUE(glm.accepts(text)) << text << "\nup to " << glm.reach(text);
    EXPECT_FALSE(glm.begins("later"));
    EXPECT_FALSE(glm.begins("get_weather\n</tool_call>")) << "two are required";
    EXPECT_FALSE(glm.begins("get_weather\n<arg_key>days</arg_key>\n<arg_value>x"));
  }
  test::GrammarRun glm = run(grammar(ReplyFormat::Glm, {.choice = {Mode::Required}}));
  EXPECT_TRUE(glm.accepts("\n<tool_call>now\n</tool_call>\n<tool_call>now\n</tool_call>"));

  const ToolGrammar automatic = grammar(ReplyFormat::MiniMax, {});
  EXPECT_EQ(automatic.starts_after, "<minimax:tool_call>");
  test::GrammarRun minimax = run(automatic);
  for (const char* text :
       {"<invoke name=\"now\"></invoke></minimax:tool_call>",
        "\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"get_weather\">\n<parameter "
        "name=\"days\">3</parameter>\n<parameter name=\"city\">a</parameter>\n</invoke>\n"
        "</minimax:tool_call>"})
    EXPECT_TRUE(minimax.accepts(text)) << text << "\nup to " << minimax.reach(text);
  EXPECT_FALSE(minimax.begins("<invoke name=\"later\""));
}

TEST(ReplyTools, GemmaGrammars) {
  const auto quoted = [](const std::string& text) { return "<|\"|>" + text + "<|\"|>"; };
  test::GrammarRun demanded = run(grammar(ReplyFormat::Gemma, {.choice = {Mode::Required}}));
  const std::string now = "<|tool_call>call:now{}<tool_call|>";
  const std::string weather = "<|tool_call>call:get_weather{city:" + quoted("a < b, {c}") +
                              ",days:3,unit:" + quoted("C") + "}<tool_call|>";
  for (const std::string& text : {now, weather, now + weather}) {
    EXPECT_TRUE(demanded.accepts(text)) << text << "\nup to " << demanded.reach(text);
    EXPECT_FALSE(parse_reply(ReplyFormat::Gemma, {.tools = tools()}, text).calls.empty());
  }
  EXPECT_FALSE(demanded.begins("<|tool_call>call:get_weather{days:3")) << "city comes first";
  EXPECT_FALSE(
      demanded.accepts("<|tool_call>call:get_weather{city:" + quoted("a") + "}<tool_call|>"));
  EXPECT_FALSE(demanded.begins("<|tool_call>call:later"));
  EXPECT_FALSE(demanded.begins("<|tool_call>call:get_weather{city:3"));

  const ToolGrammar automatic = grammar(ReplyFormat::Gemma, {});
  EXPECT_EQ(automatic.starts_after, "<|tool_call>");
  EXPECT_TRUE(automatic.repeats);
  test::GrammarRun calls = run(automatic);
  EXPECT_TRUE(calls.accepts("call:get_weather{days:3,city:" + quoted("a") + "}<tool_call|>"));
  EXPECT_FALSE(calls.begins("call:get_weather{days:x"));

  const Json nested = normalize_tools(Json::parse(R"([{"name": "f", "parameters": {
      "type": "object", "required": ["b"], "properties": {
        "b": {"type": "array", "items": {"type": "object", "properties": {
               "n": {"type": "number"}, "s": {"type": ["string", "null"]}}}},
        "a": {}}}}])"));
  test::GrammarRun deep =
      run(tool_grammar(ReplyFormat::Gemma, nested, {.choice = {Mode::Named, "f"}}));
  const std::string text = "<|tool_call>call:f{a:{x:[1,true]},b:[{n:1.5,s:null},{s:" + quoted("z") +
                           "},{}]}<tool_call|>";
  EXPECT_TRUE(deep.accepts(text)) << "up to " << deep.reach(text);
  EXPECT_FALSE(deep.begins("<|tool_call>call:f{b:[{n:n"));
}

// More of them than a grammar could keep in every order: none is demanded then.
TEST(ReplyTools, ManyDemandedParameters) {
  Json properties = Json::object(), required = Json::array();
  for (const char key : {'a', 'b', 'c', 'd', 'e', 'f', 'g'}) {
    properties[std::string(1, key)] = {{"type", "integer"}};
    required.push_back(std::string(1, key));
  }
  const Json many = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "many"},
          {"parameters",
           {{"type", "object"}, {"properties", properties}, {"required", required}}}}}}});
  test::GrammarRun calls = run(tool_grammar(ReplyFormat::QwenXml, many, {}));
  EXPECT_TRUE(
      calls.accepts("<function=many><parameter=g>1</parameter><parameter=a>2</parameter>"
                    "</function></tool_call>"));
  EXPECT_FALSE(calls.begins("<function=many><parameter=g>x"));
}

TEST(ReplyTools, JsonGrammars) {
  test::GrammarRun hermes = run(grammar(ReplyFormat::Hermes, {.choice = {Mode::Required}}));
  EXPECT_TRUE(
      hermes.accepts("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
                     "\"Oslo\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": "
                     "\"now\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(
      hermes.begins("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": 7"));
  const ToolGrammar loose =
      grammar(ReplyFormat::Hermes, {.choice = {Mode::Required}, .use_schemas = false});
  EXPECT_TRUE(run(loose).accepts(
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"any\": [7]}}\n</tool_call>"));
}

// What a format's prefix forces, its grammar allows and its parser reads.
TEST(ReplyTools, PrefixGrammarAndParserAgree) {
  const ToolChoice named{Mode::Named, "get_weather"};
  const Json arguments = Json{{"city", "Rome"}, {"days", 4}};
  for (const ReplyFormat format :
       {ReplyFormat::Hermes, ReplyFormat::QwenXml, ReplyFormat::DeepSeek,
        ReplyFormat::DeepSeekFenced, ReplyFormat::DeepSeekXml, ReplyFormat::DeepSeekV4,
        ReplyFormat::Kimi, ReplyFormat::Glm, ReplyFormat::GlmCompact, ReplyFormat::MiniMax}) {
    std::string written = arguments.dump();
    if (format == ReplyFormat::QwenXml) {
      written = "<parameter=city>\nRome\n</parameter>\n<parameter=days>\n4\n</parameter>\n";
    } else if (format == ReplyFormat::Glm || format == ReplyFormat::GlmCompact) {
      const std::string end = format == ReplyFormat::Glm ? "\n" : "";
      const auto pair = [&](const std::string& key, const std::string& value) {
        return "<arg_key>" + key + "</arg_key>" + end + "<arg_value>" + value + "</arg_value>" +
               end;
      };
      written = pair("city", "Rome") + pair("days", "4");
    } else if (format == ReplyFormat::MiniMax) {
      written =
          "<parameter name=\"city\">Rome</parameter>\n<parameter name=\"days\">4</parameter>\n";
    } else if (format == ReplyFormat::DeepSeekXml || format == ReplyFormat::DeepSeekV4) {
      const std::string begin(tagged_markup(format).parameter_begin);
      const std::string end = std::string(tagged_markup(format).parameter_end) + "\n";
      written =
          begin + "city\" string=\"true\">Rome" + end + begin + "days\" string=\"false\">4" + end;
    }
    const CallShape shape = call_shape(format);
    const std::string text = shape.block_begin + shape.before_name + named.name + shape.after_name +
                             written + shape.after_arguments + shape.block_end;
    for (const bool use_schemas : {true, false}) {
      test::GrammarRun calls = run(grammar(format, {.choice = named, .use_schemas = use_schemas}));
      EXPECT_TRUE(calls.accepts(text)) << text << "\nup to " << calls.reach(text);
    }
    const Reply reply = parse_reply(format, {.tools = tools()}, text);
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_EQ(reply.calls[0].name, "get_weather") << text;
    EXPECT_EQ(parse_json(reply.calls[0].arguments, "call"), arguments) << text;
    EXPECT_TRUE(reply.calls[0].complete) << text;
    EXPECT_EQ(reply.content, "") << text;
  }
}

TEST(ReplyTools, NoGrammarWithoutCalls) {
  expect_error(Errc::BadInput, {"grammar", "format"}, [] { grammar(ReplyFormat::Plain, {}); });
  expect_error(Errc::BadInput, {"grammar", "no tool"},
               [] { tool_grammar(ReplyFormat::Hermes, nullptr, {}); });
}

}  // namespace
}  // namespace moeflux
