// How each format writes calls, and what models make of it.
#include "text/replies/reply_calls.h"

#include <gtest/gtest.h>

#include "text/replies/reply_support.h"

namespace moeflux {
namespace {

using test::ds;
using test::with_tools;

std::string hermes(std::string_view text) {
  return with_tools(ReplyFormat::Hermes, text);
}
std::string qwen(std::string_view text) {
  return with_tools(ReplyFormat::QwenXml, text);
}
std::string deepseek(const std::string& text) {
  return with_tools(ReplyFormat::DeepSeek, ds(text));
}

std::string qwen_value(const std::string& key, const std::string& value) {
  return qwen("<tool_call>\n<function=get_weather>\n<parameter=" + key + ">\n" + value +
              "\n</parameter>\n</function>\n</tool_call>");
}

// ---- Hermes

TEST(ReplyCalls, HermesCalls) {
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", "
                   "\"days\": [1, -2.5e3, null, true]}}\n</tool_call>"),
            "{0 get_weather {\"city\": \"Oslo\", \"days\": [1, -2.5e3, null, true]}}");
  EXPECT_EQ(
      hermes("Let me see.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
             "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\nDone."),
      "Let me see.{0 now {}}{1 now {}}\nDone.");
}

TEST(ReplyCalls, HermesInManyShapes) {
  EXPECT_EQ(hermes("<tool_call>{\"arguments\": {\"city\": \"Rome\"}, \"id\": [1], \"name\": "
                   "\"get_weather\"}</tool_call>"),
            "{0 get_weather {\"city\": \"Rome\"}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"parameters\": null}</tool_call>"),
            "{0 now {}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>"),
            "{0 now {\"a\": 1}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\"}\n{\"name\": \"now\"}</tool_call>"),
            "{0 now {}}{1 now {}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\"}<tool_call>{\"name\": \"now\"}"),
            "{0 now {}}{1 now {}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>"),
            "{0 unknown {}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"1\n2\"},}</tool_call>"),
            "{0 now {\"a\": \"1\\n2\"}}");
}

TEST(ReplyCalls, HermesMarkersInStrings) {
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {\"t\": \"</tool_call>} \\\" "
                   "<tool_call>\"}}</tool_call>"),
            "{0 now {\"t\": \"</tool_call>} \\\" <tool_call>\"}}");
}

TEST(ReplyCalls, HermesThatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>not json</tool_call>", "<tool_call>", "<tool_call>\n{\"name\": \"now\"",
        "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{}</tool_call>",
        "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\" \"now\"}</tool_call>", "Use <tool_call> to call.", "</tool_call>"}) {
    EXPECT_EQ(hermes(text), text);
  }
  EXPECT_EQ(hermes("<tool_call><tool_call>{\"name\": \"now\"}</tool_call>"),
            "<tool_call>{0 now {}}");
}

TEST(ReplyCalls, HermesBrokenArgumentsStayInTheCall) {
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}</tool_call> Ok"),
            "{0 now {\"a\": oops}}!} Ok");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"cut of"),
            "{0 now {\"a\": \"cut of!}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}"),
            "{0 now {\"a\": 1}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>"),
            "{0 now [1]!}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {}}}</tool_call>"),
            "{0 now {}}}");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {}}\n</tool_"), "{0 now {}}");
}

// ---- Qwen's tags

TEST(ReplyCalls, QwenCalls) {
  EXPECT_EQ(qwen("<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
                 "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"),
            "{0 get_weather {\"city\":\"Oslo\",\"days\":2}}");
  EXPECT_EQ(
      qwen("Two calls.\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n"
           "<function=now>\n</function>\n</tool_call>"),
      "Two calls.{0 now {}}{1 now {}}");
}

TEST(ReplyCalls, QwenValuesBySchema) {
  EXPECT_EQ(qwen_value("city", "5"), R"({0 get_weather {"city":"5"}})");
  EXPECT_EQ(qwen_value("city", ""), R"({0 get_weather {"city":""}})");
  EXPECT_EQ(qwen_value("city", "\n a\t\"b\"\\\r\n\x01 \n"),
            R"({0 get_weather {"city":"\n a\t\"b\"\\\r\n\u0001 \n"}})");
  EXPECT_EQ(qwen_value("days", "123456789012345678901234567890"),
            R"({0 get_weather {"days":123456789012345678901234567890}})");
  EXPECT_EQ(qwen_value("days", "many"), R"({0 get_weather {"days":"many"}})");
  EXPECT_EQ(qwen_value("days", "01"), R"({0 get_weather {"days":"01"}})");
  EXPECT_EQ(qwen_value("exact", "True"), R"({0 get_weather {"exact":true}})");
  EXPECT_EQ(qwen_value("exact", "false"), R"({0 get_weather {"exact":false}})");
  EXPECT_EQ(qwen_value("where", "{\"a\": [1, {}]}"), R"({0 get_weather {"where":{"a": [1, {}]}}})");
  EXPECT_EQ(qwen_value("where", "{'a': 1}"), R"({0 get_weather {"where":"{'a': 1}"}})");
  EXPECT_EQ(qwen_value("tags", " [\"x\"] "), R"({0 get_weather {"tags":["x"]}})");
  EXPECT_EQ(qwen_value("note", "None"), R"({0 get_weather {"note":null}})");
  EXPECT_EQ(qwen_value("note", "nullify"), R"({0 get_weather {"note":"nullify"}})");
  EXPECT_EQ(qwen_value("unit", "C"), R"({0 get_weather {"unit":"C"}})");
  EXPECT_EQ(qwen_value("limit", "4"), R"({0 get_weather {"limit":4}})");
  EXPECT_EQ(qwen_value("limit", "four"), R"({0 get_weather {"limit":"four"}})");
  EXPECT_EQ(qwen_value("ref", "4"), R"({0 get_weather {"ref":4}})");
  EXPECT_EQ(qwen_value("unknown", "4"), R"({0 get_weather {"unknown":4}})");
  EXPECT_EQ(qwen_value("unknown", "\"4\""), R"({0 get_weather {"unknown":"4"}})");
  EXPECT_EQ(qwen_value("unknown", "True"), R"({0 get_weather {"unknown":"True"}})");
}

TEST(ReplyCalls, QwenTagsInValues) {
  EXPECT_EQ(qwen_value("city", "a </parameter> b\n</function>\n<parameter=x>\n</tool_call> <"),
            "{0 get_weather {\"city\":\"a </parameter> b\\n</function>\\n<parameter=x>\\n"
            "</tool_call> <\"}}");
  EXPECT_EQ(qwen_value("city", "</think><think>"), R"({0 get_weather {"city":"</think><think>"}})");
}

TEST(ReplyCalls, QwenWithMarkersMissing) {
  const std::string good = R"({0 get_weather {"city":"Oslo","days":2}})";
  EXPECT_EQ(qwen("<tool_call><function=get_weather><parameter=city>Oslo</parameter>"
                 "<parameter=days>2</parameter></function></tool_call>"),
            good);
  EXPECT_EQ(
      qwen("<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"
           "</parameter>\n</function>\n</tool_call>"),
      good);
  EXPECT_EQ(
      qwen("<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n<parameter=days>\n2\n"
           "</function>\n</tool_call>"),
      good);
  EXPECT_EQ(qwen("<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
                 "<parameter=days>\n2\n</parameter>\n</tool_call>"),
            good);
  EXPECT_EQ(qwen("<tool_call>\n<function=now>\n</function>"), "{0 now {}}");
  EXPECT_EQ(qwen("<tool_call>\n<function=now></function><function=now></function></tool_call>"),
            "{0 now {}}{1 now {}}");
}

TEST(ReplyCalls, QwenThatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>\nprose", "<tool_call>\n<function=now", "<tool_call>\n<function=now>\nprose",
        "<tool_call>\n<function=>\n</function>", "Write <function=name> to call.",
        "<function=other>\n</function>", "<tool_call>\n<function=a\nb>\n</function>"}) {
    EXPECT_EQ(qwen(text), text);
  }
  EXPECT_EQ(qwen("<tool_call>\n<function=other>\n</function>\n</tool_call>"), "{0 other {}}");
}

TEST(ReplyCalls, QwenCutOff) {
  const std::string head = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo";
  EXPECT_EQ(qwen(head), R"({0 get_weather {"city":"Oslo!})");
  EXPECT_EQ(qwen(head + "\n</parameter>\n"), R"({0 get_weather {"city":"Oslo"!})");
  EXPECT_EQ(qwen(head + "\n</parameter>\n<parameter=da"), R"({0 get_weather {"city":"Oslo"!})");
  EXPECT_EQ(qwen(head + "\n</parameter>\n<parameter=days>\n1"),
            R"({0 get_weather {"city":"Oslo","days":1!})");
  EXPECT_EQ(qwen(head + "\n</parameter>\n</func"), R"({0 get_weather {"city":"Oslo"!})");
}

// ---- DeepSeek and others

TEST(ReplyCalls, DeepSeekCalls) {
  EXPECT_EQ(deepseek("Let me see.<|tool~calls~begin|><|tool~call~begin|>get_weather<|tool~sep|>"
                     "{\"city\": \"Oslo\"}<|tool~call~end|><|tool~call~begin|>now<|tool~sep|>{}"
                     "<|tool~call~end|><|tool~calls~end|>"),
            "Let me see.{0 get_weather {\"city\": \"Oslo\"}}{1 now {}}");
  EXPECT_EQ(
      deepseek("<|tool~calls~begin|><|tool~call~begin|>function<|tool~sep|>get_weather\n"
               "```json\n{\"city\": \"Oslo\"}\n```<|tool~call~end|>\n<|tool~call~begin|>"
               "function<|tool~sep|>now\n```json\n{}\n```<|tool~call~end|><|tool~calls~end|>"),
      "{0 get_weather {\"city\": \"Oslo\"}}{1 now {}}");
  EXPECT_EQ(deepseek("<|tool~call~begin|>now<|tool~sep|>{\"a\": \"<|tool~call~end|>\"}"),
            "{0 now " + ds("{\"a\": \"<|tool~call~end|>\"}") + "}");
}

TEST(ReplyCalls, DeepSeekThatIsNoCallOrBroken) {
  for (const std::string text :
       {"<|tool~calls~begin|>prose", "<|tool~call~begin|>now", "<|tool~calls~begin|>",
        "<|tool~call~begin|>now<|tool~sep|>prose\nprose", "<|tool~calls~end|>", "<|User|>"}) {
    EXPECT_EQ(deepseek(text), ds(text));
  }
  EXPECT_EQ(deepseek("<|tool~call~begin|>now<|tool~sep|>{\"a\" 1}<|tool~call~end|>"
                     "<|tool~calls~end|>Ok"),
            "{0 now {\"a\" 1}!}Ok");
  EXPECT_EQ(deepseek("<|tool~call~begin|>now<|tool~sep|>{\"a\": 1"), "{0 now {\"a\": 1!}");
}

TEST(ReplyCalls, DeepSeekXmlCalls) {
  EXPECT_EQ(with_tools(ReplyFormat::DeepSeekXml,
                       ds("Ok\n\n<|DSML|function_calls>\n<|DSML|invoke name=\"get_weather\">\n"
                          "<|DSML|parameter name=\"city\" string=\"true\"> Oslo\n"
                          "</|DSML|parameter>\n<|DSML|parameter name=\"days\" string=\"false\">2"
                          "</|DSML|parameter>\n</|DSML|invoke>\n<|DSML|invoke name=\"now\">\n"
                          "</|DSML|invoke>\n</|DSML|function_calls>")),
            R"(Ok{0 get_weather {"city":" Oslo\n","days":2}}{1 now {}})");
}

TEST(ReplyCalls, DeepSeekV4Calls) {
  EXPECT_EQ(with_tools(ReplyFormat::DeepSeekV4,
                       ds("Ok.\n\n<|DSML|tool_calls>\n<|DSML|invoke name=\"get_weather\">\n"
                          "<|DSML|parameter name=\"city\" string=\"true\">5</|DSML|parameter>\n"
                          "<|DSML|parameter name=\"days\" string=\"false\">5</|DSML|parameter>\n"
                          "</|DSML|invoke>\n<|DSML|invoke name=\"now\">\n\n</|DSML|invoke>\n"
                          "</|DSML|tool_calls>")),
            R"(Ok.{0 get_weather {"city":"5","days":5}}{1 now {}})");
}

// ---- GLM

std::string glm(std::string_view text) {
  const std::string read = with_tools(ReplyFormat::Glm, text);
  EXPECT_EQ(with_tools(ReplyFormat::GlmCompact, text), read);
  return read;
}

TEST(ReplyCalls, GlmCalls) {
  const std::string good = R"({0 get_weather {"city":"Oslo","days":2}})";
  EXPECT_EQ(glm("\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
                "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"),
            good);
  EXPECT_EQ(glm("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
                "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>"),
            good);
  EXPECT_EQ(glm("<tool_call>\nget_weather \r\n <arg_key> city </arg_key>\n\n<arg_value>Oslo"
                "</arg_value><arg_key>days</arg_key>\n<arg_value> 2 </arg_value></tool_call>"),
            good);
  EXPECT_EQ(glm("I look.\n<tool_call>now\n</tool_call>\n<tool_call>now</tool_call>\nDone."),
            "I look.{0 now {}}{1 now {}}\nDone.");
  EXPECT_EQ(glm("<tool_call>later.x-1</tool_call>"), "{0 later.x-1 {}}");
}

TEST(ReplyCalls, GlmValuesBySchema) {
  const auto value = [](const std::string& key, const std::string& text) {
    return glm("<tool_call>get_weather\n<arg_key>" + key + "</arg_key>\n<arg_value>" + text +
               "</arg_value>\n</tool_call>");
  };
  EXPECT_EQ(value("city", "5"), R"({0 get_weather {"city":"5"}})");
  EXPECT_EQ(value("city", "\n a \n"), R"({0 get_weather {"city":"\n a \n"}})");
  EXPECT_EQ(value("exact", "true"), R"({0 get_weather {"exact":true}})");
  EXPECT_EQ(value("where", "{\"a\": [1]}"), R"({0 get_weather {"where":{"a": [1]}}})");
  EXPECT_EQ(value("note", "null"), R"({0 get_weather {"note":null}})");
  EXPECT_EQ(value("unknown", "4"), R"({0 get_weather {"unknown":4}})");
  EXPECT_EQ(value("city", "a</arg_value> b</tool_call>"),
            R"({0 get_weather {"city":"a</arg_value> b</tool_call>"}})");
}

TEST(ReplyCalls, GlmThatIsNoCallOrBroken) {
  for (const std::string text :
       {"<tool_call>", "<tool_call>now", "<tool_call>get_weather\n<arg", "Use <tool_call> to call.",
        "<tool_call>{\"name\": \"now\"}</tool_call>", "<tool_call>now\nand then</tool_call>",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>", "<tool_call></tool_call>"}) {
    EXPECT_EQ(glm(text), text);
  }
  EXPECT_EQ(glm("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Os"),
            "{0 get_weather {\"city\":\"Os!}");
  EXPECT_EQ(glm("<tool_call>get_weather\n<arg_key>city</arg_key> no"),
            "{0 get_weather {!}<arg_key>city</arg_key>no");
}

// ---- MiniMax

std::string minimax(std::string_view text) {
  return with_tools(ReplyFormat::MiniMax, text);
}

TEST(ReplyCalls, MiniMaxCalls) {
  EXPECT_EQ(minimax("Ok.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name="
                    "\"city\">Oslo</parameter>\n<parameter name=\"tags\">[\"a\"]</parameter>\n"
                    "</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>"),
            R"(Ok.{0 get_weather {"city":"Oslo","tags":["a"]}}{1 now {}})");
  EXPECT_EQ(minimax("<minimax:tool_call><invoke name=\"now\"></invoke></minimax:tool_call>"),
            "{0 now {}}");
  EXPECT_EQ(minimax("<invoke name=\"get_weather\"><parameter name=\"city\">a</parameter> "
                    "b</parameter></invoke>"),
            R"({0 get_weather {"city":"a</parameter> b"}})")
      << "without the block";
  for (const std::string text : {"<minimax:tool_call>", "<invoke name=\"later\">\n</invoke>",
                                 "<minimax:tool_call>\nI could.</minimax:tool_call>"})
    EXPECT_EQ(minimax(text), text);
  EXPECT_EQ(minimax("<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"days\">"
                    "2</parameter>\n<parameter na"),
            R"({0 get_weather {"days":2!})");
}

// ---- Gemma

std::string gemma(std::string_view text) {
  std::string with_quotes(text);  // written as ~
  for (std::size_t at = 0; (at = with_quotes.find('~', at)) != std::string::npos; at += 5)
    with_quotes.replace(at, 1, "<|\"|>");
  return with_tools(ReplyFormat::Gemma, with_quotes);
}

TEST(ReplyCalls, GemmaCalls) {
  EXPECT_EQ(gemma("<|tool_call>call:get_weather{city:~Oslo~,days:2}<tool_call|>"),
            R"({0 get_weather {"city":"Oslo","days":2}})");
  EXPECT_EQ(gemma("I look.<|tool_call>call:now{}<tool_call|><|tool_call>call:now{ }<tool_call|>"),
            "I look.{0 now {}}{1 now {}}");
  EXPECT_EQ(
      gemma("<|tool_call>call:f{a:[1,~x~,{b:null,~c d~:true}],e:{},g:[],h:-1.5e3}<tool_call|>"),
      R"({0 f {"a":[1,"x",{"b":null,"c d":true}],"e":{},"g":[],"h":-1.5e3}})");
  EXPECT_EQ(gemma("<|tool_call>call:f{a:~one \"two\"\n{three},<tool_call|>~}<tool_call|>"),
            R"({0 f {"a":"one \"two\"\n{three},<tool_call|>"}})");
  EXPECT_EQ(gemma("<|tool_call>call:f{ a : 1 , \"b\" : \"x\" , c : None, d: word, }<tool_call|>"),
            R"({0 f {"a":1,"b":"x","c":null,"d":"word"}})");
}

TEST(ReplyCalls, GemmaThoughts) {
  EXPECT_EQ(gemma("<|channel>thought\nHm.\n<channel|>Yes."), "[Hm.]Yes.");
  EXPECT_EQ(gemma("<|channel>thought\n<channel|>Yes."), "Yes.");
  EXPECT_EQ(gemma("<|channel>thought\nHm.<channel|><|tool_call>call:now{}<tool_call|>"),
            "[Hm.]{0 now {}}");
  EXPECT_EQ(test::parse(ReplyFormat::Gemma, {}, "<|channel>thought\nHm.\n<channel|>Yes."),
            "[Hm.]Yes.");
  EXPECT_EQ(gemma("<think>a</think>"), "<think>a</think>");
}

TEST(ReplyCalls, GemmaThatIsNoCallOrBroken) {
  for (const std::string text : {"<|tool_call>", "<|tool_call>call:now", "<|tool_call>now{}",
                                 "<|tool_call>call:a b{}", "Use <|tool_call> to call."})
    EXPECT_EQ(gemma(text), text);
  EXPECT_EQ(gemma("<|tool_call>call:f{a:1]<tool_call|>b"), R"({0 f {"a":1]!}b)");
  EXPECT_EQ(gemma("<|tool_call>call:f{a:~x"), R"({0 f {"a":"x!})");
  EXPECT_EQ(gemma("<|tool_call>call:f{a 1}<tool_call|>"), R"({0 f {a 1}!})");
}

TEST(ReplyCalls, KimiCalls) {
  EXPECT_EQ(with_tools(ReplyFormat::Kimi,
                       "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
                       "<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|>"
                       "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
                       "<|tool_call_end|><|tool_calls_section_end|>"),
            "Ok{0 get_weather {\"city\": \"Oslo\"}}{1 now {}}");
}

}  // namespace
}  // namespace moeflux
