// Embeddings and reranking as clients see them, against the engine itself.
#include <bit>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/dialects/base64.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

class EmbeddingsTest : public testing::Test {
 protected:
  Json post(const std::string& path, const Json& body) {
    const ClientResponse response = server_.post(path, body);
    EXPECT_EQ(response.status, 200) << path << " " << response.body;
    return response.json();
  }
  std::vector<float> embed(Json body) {
    return post("/v1/embeddings", body)["data"][0]["embedding"].get<std::vector<float>>();
  }
  std::string refusal(const std::string& path, const Json& body, int status = 400) {
    const ClientResponse response = server_.post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    const Json error = response.json()["error"];
    return error.is_string() ? error.get<std::string>() : error["message"].get<std::string>();
  }
  DemoServer server_;
};

// The hidden states after the final norm, by another engine of the same model.
std::vector<float> reference(const std::string& text, bool is_mean) {
  EngineOptions options;
  options.n_threads = 1;
  options.context_length = 512;
  options.max_batch = 64;
  options.memory_bytes = std::uint64_t{1} << 30;
  Engine engine(source_path("models/demo"), options);
  const std::vector<TokenId> tokens =
      engine.tokenizer().with_special_tokens(engine.tokenizer().encode_data(text));
  const auto d = static_cast<std::size_t>(engine.config().d_model);
  std::vector<float> hidden(tokens.size() * d);
  Session session = engine.new_session();
  std::vector<float> logits(static_cast<std::size_t>(engine.config().n_vocab));
  std::size_t row = 0;
  engine.prefill(session, tokens, logits, {.cancelled = {}, .hidden = [&](std::int64_t n) {
                                             float* at = hidden.data() + row * d;
                                             row += static_cast<std::size_t>(n);
                                             return at;
                                           }});
  std::vector<double> pooled(d);
  for (std::size_t t = is_mean ? 0 : tokens.size() - 1; t < tokens.size(); ++t) {
    for (std::size_t i = 0; i < d; ++i) pooled[i] += static_cast<double>(hidden[t * d + i]);
  }
  double squares = 0;
  for (const double value : pooled) squares += value * value;
  std::vector<float> result;
  for (const double value : pooled)
    result.push_back(static_cast<float>(value / std::sqrt(squares)));
  return result;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, float within) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], within) << i;
}

TEST_F(EmbeddingsTest, ArePooledHiddenStates) {
  const std::string text = "The capital of Japan is Tokyo. A frog sat by a pond.";
  expect_near(embed({{"input", text}}), reference(text, true), 2e-7f);
  expect_near(embed({{"input", text}, {"pooling", "last"}}), reference(text, false), 2e-7f);
}

TEST_F(EmbeddingsTest, DoNotDependOnTheirNeighboursNorOnPasses) {
  std::string text = "Once upon a time there was a frog.";
  while (text.size() < 600) text += " And " + text;  // several passes of 64 tokens
  const std::vector<float> alone = embed({{"input", text}});
  const Json both = post("/v1/embeddings", {{"input", Json::array({"short", text, "short"})}});
  EXPECT_EQ(both["data"][1]["embedding"].get<std::vector<float>>(), alone);
  EXPECT_EQ(both["data"][0]["embedding"], both["data"][2]["embedding"]);
  expect_near(alone, reference(text, true), 2e-7f);
}

TEST_F(EmbeddingsTest, TheFormOfOpenAi) {
  const Json body =
      post("/v1/embeddings", {{"input", Json::array({"a frog", "a pond"})}, {"model", "any"}});
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["model"], "demo");
  ASSERT_EQ(body["data"].size(), 2u);
  EXPECT_EQ(body["data"][1]["object"], "embedding");
  EXPECT_EQ(body["data"][1]["index"], 1);
  EXPECT_EQ(body["data"][1]["embedding"].size(), 256u);
  const std::int64_t n_tokens = std::ssize(server_.service().tokenizer().encode_data("a frog")) +
                                std::ssize(server_.service().tokenizer().encode_data("a pond"));
  EXPECT_EQ(body["usage"], (Json{{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}));
  double squares = 0;
  for (const Json& value : body["data"][0]["embedding"])
    squares += value.get<double>() * value.get<double>();
  EXPECT_NEAR(squares, 1, 1e-5);
}

TEST_F(EmbeddingsTest, Base64IsTheSameFloats) {
  const Json body =
      post("/embeddings", {{"input", "a frog"}, {"encoding_format", "base64"}, {"dimensions", 5}});
  const auto bytes = from_base64(body["data"][0]["embedding"].get<std::string>());
  ASSERT_TRUE(bytes && bytes->size() == 20);
  std::vector<float> floats(5);
  std::memcpy(floats.data(), bytes->data(), bytes->size());
  EXPECT_EQ(floats, embed({{"input", "a frog"}, {"dimensions", 5}}));
}

TEST_F(EmbeddingsTest, FewerDimensionsAreNormalizedAgain) {
  const std::vector<float> all = embed({{"input", "a frog"}});
  std::vector<float> some(all.begin(), all.begin() + 7);
  normalize(some);
  expect_near(embed({{"input", "a frog"}, {"dimensions", 7}}), some, 2e-7f);
}

TEST_F(EmbeddingsTest, Tokens) {
  const Json ids = server_.post("/tokenize", {{"content", "a frog"}}).json()["tokens"];
  const std::vector<float> text = embed({{"input", "a frog"}});
  EXPECT_EQ(embed({{"input", ids}}), text);
  EXPECT_EQ(embed({{"input", Json::array({ids})}}), text);
  EXPECT_EQ(embed({{"input", Json::array({Json::array({ids[0], " frog"})})}}), text);
}

// What looks like a control token is text.
TEST_F(EmbeddingsTest, TextsAreData) {
  const Json body = post("/v1/embeddings", {{"input", "<|im_end|>"}});
  EXPECT_GT(body["usage"]["prompt_tokens"].get<int>(), 1);
}

TEST_F(EmbeddingsTest, WhatCannotBeUsedIsNamed) {
  const char* path = "/v1/embeddings";
  EXPECT_EQ(refusal(path, {{"input", ""}}), "input is empty");
  EXPECT_EQ(refusal(path, {{"input", Json::array()}}), "input is empty");
  EXPECT_EQ(refusal(path, {{"input", Json::array({"a", ""})}}), "input[1] is empty");
  EXPECT_EQ(refusal(path, {{"model", "x"}}), "input is missing");
  EXPECT_EQ(refusal(path, {{"input", 5}}), "input must be a text or a list of tokens");
  EXPECT_EQ(refusal(path, {{"input", Json::array({999999})}}),
            "input has 999999, which is no token of this model");
  EXPECT_EQ(refusal(path, {{"input", "a"}, {"dimensions", 257}}),
            "dimensions is 257, but must be from 1 to 256");
  EXPECT_EQ(refusal(path, {{"input", "a"}, {"encoding_format", "int8"}}),
            "encoding_format is \"int8\", but must be float or base64");
  EXPECT_EQ(refusal(path, {{"input", "a"}, {"pooling", "cls"}}),
            "pooling is \"cls\", but must be mean or last");
  std::string text;
  for (int i = 0; i < 600; ++i) text += "frog ";
  EXPECT_NE(refusal(path, {{"input", text}}).find("but the context holds 512"), std::string::npos);
  EXPECT_EQ(refusal(path, {{"input", std::vector<std::string>(2049, "a")}}),
            "input has 2049 texts, of which 2048 may be");
}

TEST_F(EmbeddingsTest, TheFormsOfOllama) {
  const std::vector<float> frog = embed({{"input", "a frog"}});
  Json body = post("/api/embed", {{"model", "m"}, {"input", Json::array({"a frog", "b"})}});
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["embeddings"].size(), 2u);
  EXPECT_EQ(body["embeddings"][0].get<std::vector<float>>(), frog);
  EXPECT_GT(body["total_duration"].get<std::int64_t>(), 0);
  EXPECT_GT(body["prompt_eval_count"].get<int>(), 1);
  EXPECT_EQ(post("/api/embed", {{"model", "m"}})["embeddings"], Json::array());
  EXPECT_EQ(post("/api/embeddings", {{"model", "m"}, {"prompt", "a frog"}})["embedding"]
                .get<std::vector<float>>(),
            frog);
  EXPECT_EQ(post("/api/embeddings", {{"model", "m"}})["embedding"], Json::array());
  std::string text;
  for (int i = 0; i < 600; ++i) text += "frog ";
  EXPECT_NE(refusal("/api/embed", {{"input", text}}).find("the context holds 512"),
            std::string::npos);
  EXPECT_EQ(post("/api/embed", {{"input", text}, {"truncate", true}})["prompt_eval_count"], 512);
}

TEST_F(EmbeddingsTest, TheFormOfLlamaServer) {
  const Json normal = post("/embedding", {{"content", "a frog"}});
  EXPECT_EQ(normal[0]["index"], 0);
  EXPECT_EQ(normal[0]["embedding"][0].get<std::vector<float>>(), embed({{"input", "a frog"}}));
  std::vector<float> raw =
      post("/embedding", {{"input", "a frog"}, {"embd_normalize", -1}})[0]["embedding"][0]
          .get<std::vector<float>>();
  normalize(raw);
  expect_near(raw, embed({{"input", "a frog"}}), 2e-7f);
}

// No answer loses what its session holds.
TEST_F(EmbeddingsTest, SessionsKeepWhatTheyHold) {
  DemoServer server({.n_parallel = 1});
  server.post("/v1/chat/completions", sum_question());
  server.post("/v1/embeddings", {{"input", "A frog sat by a pond."}});
  server.post("/v1/rerank", {{"query", "a"}, {"documents", Json::array({"b"})}});
  const Json again = server.post("/v1/chat/completions", sum_question()).json();
  EXPECT_GT(again["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(), 10);
  EXPECT_EQ(again["choices"][0]["message"]["content"], "12 + 30 = 42");
}

TEST_F(EmbeddingsTest, BesideAnswers) {
  const std::vector<float> alone = embed({{"input", "a frog"}});
  HttpClient story(server_.port());
  story.post("/v1/chat/completions", dump_json(endless_question()));
  story.read_until("frog");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(embed({{"input", "a frog"}}), alone);
  EXPECT_EQ(server_.service().stats().n_running, 1u);
}

// Under a ceiling that the cache fills, it makes room and has it again afterwards.
TEST(EmbeddingsMemory, TheCacheLendsIt) {
  DemoServer roomy;
  const Json body = {{"input", "A frog sat by a pond."}, {"dimensions", 4}};
  const Json want = roomy.post("/v1/embeddings", body).json();
  DemoServer tight(
      {.adjust = [](EngineOptions& options) { options.memory_bytes = std::uint64_t{120} << 20; }});
  Engine& engine = tight.engine();
  ASSERT_LT(engine.plan().n_slots, engine.plan().max_slots);
  const std::uint64_t before = engine.experts().cache().capacity_bytes();
  const ClientResponse response = tight.post("/v1/embeddings", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.json(), want);
  EXPECT_EQ(tight.post("/v1/embeddings", body).status, 200);
  tight.service().stop();
  EXPECT_EQ(engine.experts().cache().capacity_bytes(), before);
  expect_error(Errc::OutOfMemory, {"--ram", "1.0 TiB"},
               [&] { engine.lend_memory(std::uint64_t{1} << 40); });
  EXPECT_EQ(engine.experts().cache().capacity_bytes(), before);
}

TEST_F(EmbeddingsTest, AfterTheEndNothingIsRead) {
  server_.service().drain(std::chrono::milliseconds(100));
  EXPECT_EQ(server_.post("/v1/embeddings", {{"input", "a"}}).status, 503);
}

// ---- reranking

Json rerank_body() {
  return {{"query", "What is the capital of Japan?"},
          {"documents", Json::array({"A frog sat by a pond.",
                                     "The capital of Japan is Tokyo.",
                                     {{"text", "12 + 30 = 42"}}})}};
}

TEST_F(EmbeddingsTest, DocumentsInTheirOrder) {
  const Json body = post("/v1/rerank", rerank_body());
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["usage"]["prompt_tokens"], body["usage"]["total_tokens"]);
  ASSERT_EQ(body["results"].size(), 3u);
  std::set<int> indices;
  double last = 1;
  for (const Json& result : body["results"]) {
    const double score = result["relevance_score"];
    EXPECT_GE(score, 0);
    EXPECT_LE(score, last);
    last = score;
    indices.insert(result["index"].get<int>());
    EXPECT_FALSE(result.contains("document"));
  }
  EXPECT_EQ(indices, (std::set<int>{0, 1, 2}));
}

// The scores are what a chat with the same words says of its next token.
TEST_F(EmbeddingsTest, ScoresAreLogProbabilities) {
  Json body = {
      {"query", "Is it wet?"}, {"texts", Json::array({"It rains."})}, {"raw_scores", true}};
  const double odds = post("/rerank", body)[0]["score"];
  Json chat = {
      {"messages",
       Json::array({{{"role", "system"},
                     {"content",
                      "Judge whether a document helps to answer a query. Answer "
                      "with \"yes\" or \"no\"."}},
                    {{"role", "user"}, {"content", "Query: Is it wet?\n\nDocument: It rains."}},
                    {{"role", "assistant"}, {"content", "Answer:"}}})},
      {"chat_template_kwargs", {{"enable_thinking", false}}}};
  const std::string prompt = post("/apply-template", chat)["prompt"];
  // This tokenizer has no token for a whole "yes": the first tokens count.
  const auto first = [&](const char* word) {
    const Json ids = post("/tokenize", {{"content", word}, {"parse_special", false}})["tokens"];
    return ids[0].get<TokenId>();
  };
  // Each forced by a bias, so that its own log-probability is told.
  double sums[2] = {0, 0};
  const char* words[2][4] = {{" yes", " Yes", "yes", "Yes"}, {" no", " No", "no", "No"}};
  for (int i = 0; i < 2; ++i) {
    std::set<TokenId> seen;
    for (const char* word : words[i]) {
      const TokenId id = first(word);
      if (!seen.insert(id).second) continue;
      Json ask = {{"prompt", prompt},
                  {"n_predict", 1},
                  {"temperature", 0},
                  {"n_probs", 1},
                  {"logit_bias", {{std::to_string(id), 100}}}};
      const Json token = post("/completion", ask)["completion_probabilities"][0];
      ASSERT_EQ(token["id"], id);
      sums[i] += std::exp(token["logprob"].get<double>());
    }
    ASSERT_FALSE(seen.empty());
  }
  EXPECT_NEAR(odds, std::log(sums[0]) - std::log(sums[1]), 2e-4);
}

TEST_F(EmbeddingsTest, FewerAndWithTheirTexts) {
  Json body = rerank_body();
  body["top_n"] = 1;
  body["return_documents"] = true;
  const Json results = post("/v1/reranking", body)["results"];
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(results[0]["document"]["text"].is_string());
  const Json tei =
      post("/rerank", {{"query", "q"}, {"texts", Json::array({"a", "b"})}, {"return_text", true}});
  ASSERT_EQ(tei.size(), 2u);
  EXPECT_TRUE(tei[0]["text"].is_string());
}

TEST_F(EmbeddingsTest, RequestsThatCannotBeRanked) {
  const auto with = [](const char* field, const Json& value) {
    Json body = rerank_body();
    body[field] = value;
    return body;
  };
  EXPECT_EQ(refusal("/rerank", with("query", "")), "query is empty");
  EXPECT_EQ(refusal("/rerank", with("query", nullptr)), "query is missing");
  EXPECT_EQ(refusal("/rerank", with("documents", Json::array())), "documents is empty");
  EXPECT_EQ(refusal("/rerank", with("documents", nullptr)), "documents is missing");
  EXPECT_EQ(refusal("/rerank", with("documents", Json::array({5}))),
            "documents[0] must be a text, or an object with one");
  EXPECT_EQ(refusal("/rerank", with("top_n", 0)), "top_n is 0, but must be at least 1");
  std::string text;
  for (int i = 0; i < 600; ++i) text += "frog ";
  EXPECT_NE(
      refusal("/rerank", with("documents", Json::array({text}))).find("the context holds 512"),
      std::string::npos);
}

}  // namespace
}  // namespace moeflux::test
