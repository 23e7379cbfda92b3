// Calls that a model makes by itself: free until one begins, well-formed from there.
#include "server/service/call_constraint.h"

#include <gtest/gtest.h>

#include "runtime/sampling/sampler.h"
#include "server/demo_server.h"
#include "text/grammar/grammar_cache.h"
#include "text/grammar/vocabulary_support.h"
#include "text/replies/reply_tools.h"

namespace moeflux::test {
namespace {

Json weather_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters":
      {"type": "object", "required": ["city", "days"], "properties": {"city": {"type": "string"},
       "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}}}}}])");
}

class CallConstraintTest : public testing::Test {
 protected:
  CallConstraintTest()
      : tokenizer_(demo_tokenizer()),
        end_(*tokenizer_.eos()),
        grammars_(trie_of(tokenizer_, {end_})) {}

  CallConstraint make(bool opens_thought = false, bool repeats = true,
                      ReplyFormat format = ReplyFormat::QwenXml) {
    const ToolGrammar grammar = tool_grammar(format, weather_tools(), {.parallel = repeats});
    return {tokenizer_, grammars_.gbnf(grammar.gbnf, grammar.schemas),
            CallConstraint::Options{.format = format,
                                    .opener = grammar.starts_after,
                                    .end_tokens = {end_},
                                    .opens_thought = opens_thought,
                                    .repeats = grammar.repeats}};
  }
  void say(CallConstraint& constraint, std::string_view text) {
    for (const TokenId id : tokenizer_.encode_markup(text)) constraint.accept(id);
  }
  bool allows(CallConstraint& constraint, std::string_view text) {
    const auto allowed = constraint.allowed();
    return allowed.empty() ||
           allowed[static_cast<std::size_t>(tokenizer_.encode_markup(text).at(0))] != 0;
  }

  Tokenizer tokenizer_;
  TokenId end_;
  GrammarCache grammars_;
};

TEST_F(CallConstraintTest, EverythingIsFreeUntilACallBegins) {
  CallConstraint constraint = make();
  for (const char* text : {"Let me see", ": <tool", "_cal", " or <", "/tool_call> \n"}) {
    say(constraint, text);
    EXPECT_TRUE(constraint.allowed().empty()) << text;
    EXPECT_TRUE(constraint.may_end());
    EXPECT_FALSE(constraint.must_end());
  }
  say(constraint, "<tool_call>");
  EXPECT_FALSE(constraint.allowed().empty());
  EXPECT_FALSE(constraint.may_end());
  EXPECT_TRUE(allows(constraint, "\n"));
  EXPECT_FALSE(allows(constraint, "Hello"));
  EXPECT_FALSE(allows(constraint, "<|im_end|>"));
  say(constraint, "\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n");
  EXPECT_FALSE(allows(constraint, "</tool_call>"));
  say(constraint, "<parameter=city>\nOslo\n</parameter>\n</function>\n");
  EXPECT_TRUE(allows(constraint, "</tool_call>"));
  say(constraint, "</tool_call>");
  EXPECT_TRUE(constraint.allowed().empty());
  EXPECT_FALSE(constraint.must_end());
  say(constraint, "\nAnd now <tool_call>");
  EXPECT_FALSE(constraint.allowed().empty());
}

TEST_F(CallConstraintTest, OneBlockOnlyEndsTheAnswer) {
  CallConstraint constraint = make(false, /*repeats=*/false);
  say(constraint,
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
      "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>");
  EXPECT_TRUE(constraint.must_end());
  EXPECT_TRUE(constraint.may_end());
}

TEST_F(CallConstraintTest, InThoughtsNothingIsACall) {
  CallConstraint opened = make(/*opens_thought=*/true);
  say(opened, "I write <tool_call> and");
  EXPECT_TRUE(opened.allowed().empty());
  say(opened, " done.\n</think>\n\n");
  EXPECT_TRUE(opened.allowed().empty());
  say(opened, "<tool_call>");
  EXPECT_FALSE(opened.allowed().empty());

  CallConstraint own = make();
  say(own, "\n<think>\nperhaps <tool_call>");
  EXPECT_TRUE(own.allowed().empty());
  say(own, "</think><tool_call>");
  EXPECT_FALSE(own.allowed().empty());

  CallConstraint late = make();
  say(late, "A thought begins with <think>, a call with <tool_call>");
  EXPECT_FALSE(late.allowed().empty());
}

// In channels only the head of a message says that it is a call.
TEST_F(CallConstraintTest, RecipientsInHeads) {
  CallConstraint constraint = make(false, true, ReplyFormat::Harmony);
  say(constraint, "<|channel|>analysis<|message|>I write to=functions.get_weather, perhaps.");
  EXPECT_TRUE(constraint.allowed().empty());
  say(constraint, "<|end|><|start|>assistant<|channel|>commentary to=functions.");
  EXPECT_FALSE(constraint.allowed().empty());
  EXPECT_TRUE(allows(constraint, "g"));
  EXPECT_FALSE(allows(constraint, "x"));
  say(constraint, "get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\", \"days\": ");
  EXPECT_TRUE(allows(constraint, "3"));
  EXPECT_FALSE(allows(constraint, "\""));
  EXPECT_FALSE(constraint.may_end());
  say(constraint, "3}");
  EXPECT_TRUE(constraint.may_end());

  CallConstraint opened = make(/*opens_thought=*/true, true, ReplyFormat::Harmony);
  say(opened, "I think to=functions.");
  EXPECT_TRUE(opened.allowed().empty());
  say(opened, "<|end|><|start|>assistant to=functions.");
  EXPECT_FALSE(opened.allowed().empty());
}

// Without tokens for the markers, their last letters may come with what follows.
TEST_F(CallConstraintTest, MarkersInLetters) {
  CallConstraint constraint = make();
  const std::string spelled = "ok <tool_call>\n<fun";
  for (const char c : spelled.substr(0, spelled.size() - 5))
    constraint.accept(tokenizer_.find_token(std::string(1, c)).value());
  EXPECT_FALSE(constraint.allowed().empty());
  EXPECT_TRUE(allows(constraint, "\n"));
  EXPECT_FALSE(allows(constraint, "x"));

  const TokenId glued = [&] {  // a token that ends a marker and goes on
    for (TokenId id = 0; id < static_cast<TokenId>(tokenizer_.n_ids()); ++id) {
      const std::string_view bytes = tokenizer_.token_bytes(id);
      if (bytes.size() > 1 && bytes[0] == '>') return id;
    }
    return TokenId{-1};
  }();
  if (glued < 0) return;
  CallConstraint other = make();
  for (const char c : std::string("<tool_call"))
    other.accept(tokenizer_.find_token(std::string(1, c)).value());
  other.accept(glued);
  const bool begins_call =
      tokenizer_.token_bytes(glued).find_first_not_of(">\n\t ") == std::string_view::npos;
  EXPECT_EQ(other.allowed().empty(), !begins_call);
}

// Whatever the logits, a call that was begun is one that its parser reads.
TEST_F(CallConstraintTest, RandomLogitsMakeCompleteCalls) {
  int n_ended = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CallConstraint constraint = make(false, /*repeats=*/false);
    Random random(seed);
    Sampler sampler;
    std::vector<TokenId> ids = tokenizer_.encode_markup("<tool_call>");
    say(constraint, "<tool_call>");
    SamplingParams params;
    params.temperature = 1.5;
    params.seed = seed;
    while (ids.size() < 400 && !constraint.must_end()) {
      std::vector<float> logits = random.floats(static_cast<std::int64_t>(tokenizer_.n_ids()), 4.0);
      // A liking for the end of a value, else texts would not end.
      const std::string end = "\n</parameter>\n", text = tokenizer_.decode(ids);
      std::size_t seen = std::min(end.size() - 1, text.size());
      while (!text.ends_with(end.substr(0, seen))) --seen;
      const auto next = tokenizer_.find_token(std::string(1, end[seen]));
      if (random.chance(0.9)) logits[static_cast<std::size_t>(next.value())] += 30;
      const TokenId id = sampler.sample({.logits = logits,
                                         .n_valid = tokenizer_.n_ids(),
                                         .allowed = constraint.allowed(),
                                         .history = ids,
                                         .step = ids.size()},
                                        params);
      constraint.accept(id);
      ids.push_back(id);
    }
    if (!constraint.must_end()) continue;
    ++n_ended;
    const std::string text = tokenizer_.decode(ids);
    const Reply reply = parse_reply(ReplyFormat::QwenXml, {.tools = weather_tools()}, text);
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_TRUE(reply.calls[0].complete) << text;
    const Json arguments = parse_json(reply.calls[0].arguments, "arguments");
    EXPECT_TRUE(arguments.at("city").is_string()) << text;
    EXPECT_TRUE(arguments.at("days").is_number_integer()) << text;
  }
  EXPECT_GT(n_ended, 0);
}

// ---- in the server

class FreeCallsTest : public testing::Test {
 protected:
  static Json ask(const std::string& text, Json tools) {
    Json body = question(text);
    body["tools"] = std::move(tools);
    return body;
  }
  Json choice(const Json& body) {
    const ClientResponse response = server_.post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.json().at("choices").at(0);
  }
  // What the model writes when nothing is forbidden.
  std::string unconstrained(const Json& body) {
    const std::string prompt =
        server_.post("/apply-template", body).json().at("prompt").get<std::string>();
    return server_.post("/v1/completions", {{"prompt", prompt}, {"temperature", 0}})
        .json()
        .at("choices")
        .at(0)
        .at("text");
  }
  DemoServer server_;
};

Json timer_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "set_timer",
      "description": "Start a timer", "parameters": {"type": "object", "properties":
      {"minutes": {"type": "integer"}}, "required": ["minutes"]}}},
      {"type": "function", "function": {"name": "get_weather", "description":
      "Get the weather in a city", "parameters": {"type": "object", "properties":
      {"city": {"type": "string"}}, "required": ["city"]}}}])");
}

TEST_F(FreeCallsTest, AModelThatCallsWellIsNotDisturbed) {
  for (const char* text : {"Set a timer for 53 minutes.", "Is it raining in Rabat?",
                           "What is 12 + 30?", "What is the weather in Paris?"}) {
    const Json body = ask(text, timer_tools());
    const std::string free = unconstrained(body);
    const Reply reply = parse_reply(ReplyFormat::QwenXml, {.tools = timer_tools()}, free);
    const Json message = choice(body).at("message");
    EXPECT_EQ(message.contains("tool_calls"), !reply.calls.empty()) << free;
    if (reply.calls.empty()) {
      EXPECT_EQ(message.at("content"), reply.content);
    } else {
      const Json& function = message.at("tool_calls").at(0).at("function");
      EXPECT_EQ(function.at("name"), reply.calls[0].name);
      EXPECT_EQ(function.at("arguments"), reply.calls[0].arguments);
    }
  }
}

// A schema the model has not learned: it would write a number of minutes.
TEST_F(FreeCallsTest, TheSchemaIsKept) {
  Json tools = timer_tools();
  tools[0]["function"]["parameters"]["properties"]["minutes"] = {{"enum", {"soon", "later"}}};
  const Json found = choice(ask("Set a timer for 53 minutes.", tools));
  ASSERT_TRUE(found.at("message").contains("tool_calls")) << found.dump();
  EXPECT_EQ(found.at("finish_reason"), "tool_calls");
  const Json arguments = parse_json(
      found.at("message").at("tool_calls").at(0).at("function").at("arguments").get<std::string>(),
      "arguments");
  EXPECT_TRUE(arguments.at("minutes") == "soon" || arguments.at("minutes") == "later");
}

// What no grammar can keep does not keep anybody from asking.
TEST_F(FreeCallsTest, SchemasThatCannotBeKeptAreLeftToTheModel) {
  Json tools = timer_tools();
  tools[0]["function"]["parameters"]["not"] = {{"type", "null"}};
  tools[0]["function"]["parameters"]["properties"]["minutes"] = {{"type", "integer"},
                                                                 {"not", {{"const", 5}}}};
  const Json found = choice(ask("Set a timer for 53 minutes.", tools));
  EXPECT_EQ(found.at("message").at("tool_calls").at(0).at("function").at("arguments"),
            "{\"minutes\":53}");
}

}  // namespace
}  // namespace moeflux::test
