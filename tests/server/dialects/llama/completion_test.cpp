// llama-server's own /completion, /infill, /props, /slots and /tokenize as a client sees them.
#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/scripted_model.h"

namespace moeflux::test {
namespace {

class LlamaCompletionTest : public testing::Test {
 protected:
  static Json prompt(int n_predict) {
    return {{"prompt", "Once upon"}, {"n_predict", n_predict}, {"temperature", 0}};
  }
  Json post(const Json& body) {
    const ClientResponse response = server_.post("/completion", body);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.json();
  }
  std::vector<Json> stream(Json body) {
    body["stream"] = true;
    std::vector<Json> chunks;
    for (const std::string& event : server_.post("/completion", body).events())
      chunks.push_back(parse_json(event, "chunk"));
    return chunks;
  }
  std::string refusal(const Json& body) {
    const ClientResponse response = server_.post("/completion", body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"]["message"];
  }
  DemoServer server_;
};

TEST_F(LlamaCompletionTest, OneObject) {
  const Json body = post(prompt(4));
  EXPECT_EQ(body["content"], " a time there was");
  EXPECT_EQ(body["tokens"], Json::array());
  EXPECT_EQ(body["stop"], true);
  EXPECT_EQ(body["stop_type"], "limit");
  EXPECT_EQ(body["stopping_word"], "");
  EXPECT_EQ(body["tokens_predicted"], 4);
  EXPECT_EQ(body["tokens_evaluated"], 2);
  EXPECT_EQ(body["tokens_cached"], 6);
  EXPECT_EQ(body["truncated"], false);
  EXPECT_EQ(body["has_new_line"], false);
  EXPECT_EQ(body["prompt"], "Once upon");
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["index"], 0);
  EXPECT_EQ(body["generation_settings"]["n_predict"], 4);
  EXPECT_EQ(body["generation_settings"]["temperature"], 0.0);
  EXPECT_EQ(body["timings"]["prompt_n"], 2);
  EXPECT_EQ(body["timings"]["predicted_n"], 4);
  EXPECT_FALSE(body.contains("completion_probabilities"));
}

TEST_F(LlamaCompletionTest, TokensWhereTheyAreWanted) {
  Json body = prompt(3);
  body["return_tokens"] = true;
  const Json tokens = post(body)["tokens"];
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(server_.post("/detokenize", {{"tokens", tokens}}).json()["content"], " a time there");
}

TEST_F(LlamaCompletionTest, WhyItEnds) {
  Json body = prompt(20);
  body["stop"] = Json::array({" there"});
  const Json word = post(body);
  EXPECT_EQ(word["content"], " a time");
  EXPECT_EQ(word["stop_type"], "word");
  EXPECT_EQ(word["stopping_word"], " there");
  body = {{"prompt",
           "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
           "</think>\n\n"},
          {"temperature", 0}};
  const Json end = post(body);
  EXPECT_EQ(end["content"], "12 + 30 = 42");
  EXPECT_EQ(end["stop_type"], "eos");
  body["ignore_eos"] = true;
  const Json full = post(body);
  EXPECT_EQ(full["stop_type"], "limit");
  EXPECT_EQ(full["truncated"], true);  // the context was full before any limit
}

TEST_F(LlamaCompletionTest, AStreamIsTheSame) {
  const std::vector<Json> chunks = stream(prompt(4));
  ASSERT_EQ(chunks.size(), 5u);
  std::string content;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(chunks[i]["stop"], false);
    EXPECT_EQ(chunks[i]["tokens"].size(), 1u);
    EXPECT_EQ(chunks[i]["tokens_predicted"], i + 1);
    EXPECT_FALSE(chunks[i].contains("timings"));
    content += chunks[i]["content"];
  }
  EXPECT_EQ(content, " a time there was");
  EXPECT_EQ(chunks[4]["stop"], true);
  EXPECT_EQ(chunks[4]["content"], "");
  EXPECT_EQ(chunks[4]["stop_type"], "limit");
  EXPECT_EQ(chunks[4]["timings"]["predicted_n"], 4);
}

TEST_F(LlamaCompletionTest, ProgressAndTimingsInAStream) {
  Json body = prompt(2);
  body["return_progress"] = true;
  body["timings_per_token"] = true;
  const std::vector<Json> chunks = stream(body);
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0]["prompt_progress"]["total"], 2);
  EXPECT_EQ(chunks[0]["prompt_progress"]["cache"], 0);
  EXPECT_EQ(chunks[0]["prompt_progress"]["processed"], 2);
  EXPECT_EQ(chunks[1]["timings"]["predicted_n"], 1);
  EXPECT_EQ(chunks[2]["timings"]["predicted_n"], 2);
}

TEST_F(LlamaCompletionTest, Probabilities) {
  Json body = prompt(3);
  body["n_probs"] = 2;
  const Json tokens = post(body)["completion_probabilities"];
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0]["token"], " a");
  EXPECT_EQ(tokens[0]["bytes"], Json::array({32, 97}));
  EXPECT_LE(tokens[0]["logprob"].get<double>(), 0);
  ASSERT_EQ(tokens[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(tokens[0]["top_logprobs"][0]["id"], tokens[0]["id"]);
  for (const Json& chunk : stream(body)) {
    if (chunk["stop"] == true) continue;
    EXPECT_EQ(chunk["completion_probabilities"].size(), 1u);
  }
}

TEST_F(LlamaCompletionTest, ProbabilitiesAfterSampling) {
  Json body = prompt(4);
  body["n_probs"] = 20;
  body["post_sampling_probs"] = true;
  const Json greedy = post(body)["completion_probabilities"];
  ASSERT_EQ(greedy.size(), 4u);
  for (const Json& token : greedy) {
    EXPECT_EQ(token["prob"], 1.0);  // the most likely one is all there is to draw from
    EXPECT_EQ(token["top_probs"].size(), 1u);
    EXPECT_FALSE(token.contains("logprob"));
  }
  body["prompt"] = "The";
  body["temperature"] = 1.5;
  body["top_k"] = 4;
  body["top_p"] = 1;
  body["seed"] = 7;
  const Json tokens = post(body)["completion_probabilities"];
  for (const Json& token : tokens) {
    ASSERT_LE(token["top_probs"].size(), 4u);
    double sum = 0;
    bool has_drawn = false;
    for (const Json& each : token["top_probs"]) {
      EXPECT_GT(each["prob"].get<double>(), 0);
      sum += each["prob"].get<double>();
      has_drawn |= each["id"] == token["id"] && each["prob"] == token["prob"];
    }
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_TRUE(has_drawn);
  }
}

TEST_F(LlamaCompletionTest, FormsOfPrompts) {
  const Json ids = server_.post("/tokenize", {{"content", "Once upon"}}).json()["tokens"];
  const auto contents = [&](const Json& given) {
    Json body = prompt(3);
    body["prompt"] = given;
    return post(body);
  };
  const std::string text = " a time there";
  EXPECT_EQ(contents(ids)["content"], text);
  EXPECT_EQ(contents({{"prompt_string", "Once upon"}})["content"], text);
  const Json several = contents(Json::array({ids, "Once upon", {{"prompt_string", "Once upon"}}}));
  ASSERT_EQ(several.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(several[i]["content"], text);
    EXPECT_EQ(several[i]["index"], i);
  }
  EXPECT_EQ(contents(Json::array({ids[0], " upon"}))["content"], text);
  Json image = prompt(1);
  image["prompt"] = {{"prompt_string", "a"}, {"multimodal_data", Json::array({"aGk="})}};
  EXPECT_EQ(refusal(image), "prompt.multimodal_data cannot be read: text only");
}

TEST_F(LlamaCompletionTest, OnlySomeFields) {
  Json body = prompt(2);
  body["response_fields"] = Json::array({"content", "generation_settings/n_predict", "nothing"});
  EXPECT_EQ(post(body), (Json{{"content", " a time"}, {"generation_settings/n_predict", 2}}));
}

TEST_F(LlamaCompletionTest, NothingIsWritten) {
  const Json body = post(prompt(0));
  EXPECT_EQ(body["content"], "");
  EXPECT_EQ(body["tokens_predicted"], 0);
  EXPECT_EQ(body["stop_type"], "limit");
}

TEST_F(LlamaCompletionTest, BiasOfTexts) {
  Json body = prompt(1);
  body["logit_bias"] = Json::array({Json::array({" a", false})});
  EXPECT_NE(post(body)["content"], " a");
  body["logit_bias"] = {{" a", -100}};
  EXPECT_NE(post(body)["content"], " a");
}

TEST_F(LlamaCompletionTest, Refusals) {
  Json body = prompt(1);
  body["n_probs"] = 21;
  EXPECT_EQ(refusal(body), "n_probs is 21, but must be from 0 to 20");
  body = prompt(1);
  body["lora"] = Json::array({{{"id", 0}, {"scale", 1}}});
  EXPECT_EQ(refusal(body), "lora is not supported: this server has no adapters");
  body = prompt(-3);
  EXPECT_EQ(refusal(body), "n_predict is -3, but must be at least -2");
  EXPECT_EQ(refusal({{"n_predict", 1}}), "prompt is missing");
  EXPECT_EQ(refusal({{"prompt", ""}}), "the prompt is empty");
}

// ---- infilling

ScriptedModel infill_model() {
  return ScriptedModel("channels", {{"<|fim_prefix|>"},
                                    {"<|fim_suffix|>"},
                                    {"<|fim_middle|>"},
                                    {"<|repo_name|>"},
                                    {"<|file_sep|>"}});
}

TEST(LlamaInfill, PrefixSuffixMiddle) {
  const ScriptedModel model = infill_model();
  DemoServer server({.model = model.path()});
  Json body = {{"input_prefix", "int a = "},
               {"input_suffix", ";\n"},
               {"prompt", "1"},
               {"n_predict", 2},
               {"temperature", 0}};
  EXPECT_EQ(server.post("/infill", body).json()["prompt"],
            "<|fim_prefix|>int a = <|fim_suffix|>;\n<|fim_middle|>1");
  body["input_extra"] = Json::array({{{"filename", "b.h"}, {"text", "int b;\n"}}});
  EXPECT_EQ(server.post("/infill", body).json()["prompt"],
            "<|repo_name|>repository\n<|file_sep|>b.h\nint b;\n<|file_sep|>this file\n"
            "<|fim_prefix|>int a = <|fim_suffix|>;\n<|fim_middle|>1");
  body["input_extra"] = Json::array({{{"filename", "b.h"}}});
  EXPECT_EQ(server.post("/infill", body).json()["error"]["message"],
            "input_extra[0].text is missing");
  body.erase("input_extra");
  body.erase("input_suffix");
  EXPECT_EQ(server.post("/infill", body).json()["error"]["param"], "input_suffix");
}

TEST(LlamaInfill, TextsHaveNoControlTokens) {
  const ScriptedModel model = infill_model();
  DemoServer server({.model = model.path()});
  const Json body = {{"input_prefix", "<|fim_middle|>"}, {"input_suffix", ""}, {"n_predict", 1}};
  const Json answer = server.post("/infill", body).json();
  // Three control tokens, and the bytes of the fourth.
  EXPECT_GT(answer["tokens_evaluated"].get<int>(), 6);
}

TEST(LlamaInfill, SuffixOfCompletions) {
  const ScriptedModel model = infill_model();
  DemoServer server({.model = model.path()});
  Json body = {{"prompt", "int a = "}, {"suffix", ";\n"}, {"max_tokens", 1}, {"echo", true}};
  const Json answer = server.post("/v1/completions", body).json();
  EXPECT_EQ(answer["choices"][0]["text"].get<std::string>().rfind(
                "<|fim_prefix|>int a = <|fim_suffix|>;\n<|fim_middle|>", 0),
            0u);
}

TEST(LlamaInfill, SuffixOfOllama) {
  const ScriptedModel model = infill_model();
  DemoServer server({.model = model.path()});
  const Json body = {{"prompt", "int a = "},
                     {"suffix", ";"},
                     {"stream", false},
                     {"options", {{"num_predict", 1}}}};
  const Json infill = {{"input_prefix", "int a = "}, {"input_suffix", ";"}, {"n_predict", 1}};
  EXPECT_EQ(server.post("/api/generate", body).json()["prompt_eval_count"],
            server.post("/infill", infill).json()["tokens_evaluated"]);
}

TEST_F(LlamaCompletionTest, AModelWithoutTokensForIt) {
  const ClientResponse response =
      server_.post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}});
  EXPECT_EQ(response.status, 501);
  EXPECT_EQ(server_.post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}})
                .json()["error"]["message"],
            "suffix is not supported: this model has no tokens for infilling");
}

// ---- questions

TEST_F(LlamaCompletionTest, Props) {
  const Json props = server_.get("/props").json();
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 512);
  EXPECT_EQ(props["default_generation_settings"]["params"]["n_predict"], -1);
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["modalities"], (Json{{"vision", false}, {"audio", false}}));
  EXPECT_EQ(props["chat_template_caps"]["supports_tools"], true);
  EXPECT_EQ(props["eos_token"], "<|im_end|>");
  EXPECT_EQ(props["is_sleeping"], false);
}

TEST_F(LlamaCompletionTest, Slots) {
  const Json slots = server_.get("/slots").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[1],
            (Json{{"id", 1}, {"n_ctx", 512}, {"speculative", false}, {"is_processing", false}}));
  EXPECT_EQ(server_.get("/slots?fail_on_no_slot=1").status, 200);
}

TEST_F(LlamaCompletionTest, TokensOfMixedContent) {
  const Json ids = server_.post("/tokenize", {{"content", "Once upon"}}).json()["tokens"];
  Json mixed = Json::array({ids[0], " upon"});
  EXPECT_EQ(server_.post("/tokenize", {{"content", mixed}}).json()["tokens"], ids);
  const ClientResponse refused = server_.post("/tokenize", {{"content", Json::array({-1})}});
  EXPECT_EQ(refused.json()["error"]["message"], "content has -1, which is no token of this model");
}

TEST_F(LlamaCompletionTest, TokensOfAChat) {
  EXPECT_EQ(server_.post("/v1/chat/completions/input_tokens", sum_question()).json(),
            (Json{{"input_tokens", 24}}));
}

}  // namespace
}  // namespace moeflux::test
