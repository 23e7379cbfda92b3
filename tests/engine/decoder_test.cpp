// Drafting changes how long an answer takes, never what it is.
#include "engine/decoder.h"

#include <gtest/gtest.h>

#include "engine/generate.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;

EngineOptions options(int max_drafts) {
  EngineOptions result;
  result.n_threads = 2;
  result.context_length = 256;
  result.memory_bytes = std::uint64_t{1} << 30;
  result.max_drafts = max_drafts;
  result.elastic = false;
  return result;
}

std::string demo() {
  return test::source_path("models/demo");
}

std::vector<TokenId> question(const Engine& engine, const char* text) {
  ChatRequest chat;
  chat.messages = Json::array({{{"role", "user"}, {"content", text}}});
  return engine.tokenizer().encode(engine.chat_template().render(chat));
}

TEST(DecoderTest, EveryKindOfDraftGivesThePlainAnswer) {
  Engine plain(demo(), options(0));
  Engine drafting(demo(), options(3));
  ASSERT_EQ(drafting.max_drafts(), 3);
  AnswerRequest request;
  request.max_tokens = 60;
  request.ignore_end = true;
  for (const double temperature : {0.0, 0.9}) {
    request.prompt = question(plain, "What is 17 + 25?");
    request.sampling.temperature = temperature;
    request.sampling.seed = 11;
    Session alone = plain.new_session();
    const GenerateResult want = generate(plain, alone, request);
    ASSERT_EQ(want.tokens.size(), 60u);
    for (const DraftOptions& drafts :
         {DraftOptions{.mtp = true, .depth = 1}, DraftOptions{.mtp = true, .depth = 3},
          DraftOptions{.ngram = true, .depth = 3}, DraftOptions{.mtp = true, .ngram = true}}) {
      Session session = drafting.new_session();
      const GenerateResult result = generate(drafting, session, request, {.drafts = drafts});
      EXPECT_EQ(result.tokens, want.tokens);
      EXPECT_EQ(result.text, want.text);
      // The session is left as plain decoding leaves it.
      EXPECT_TRUE(std::equal(session.tokens().begin(), session.tokens().end(),
                             alone.tokens().begin(), alone.tokens().end()));
      EXPECT_LE(result.drafts.accepted, result.drafts.drafted);
      EXPECT_EQ(result.drafts.passes + result.drafts.accepted, 59);
      if (drafts.mtp && temperature == 0) {
        EXPECT_GT(result.drafts.accepted, 10);
      }
    }
  }
}

TEST(DecoderTest, LogitsAreThoseOfPlainDecodingBitByBit) {
  Engine engine(demo(), options(2));
  const std::vector<TokenId> prompt = question(engine, "Name three colours.");
  const std::vector<TokenId> noise =
      test::Random(5).tokens(12, engine.config().n_vocab);  // drafts will be wrong
  Session one = engine.new_session(), two = engine.new_session();
  Decoder drafting(engine, one, {.mtp = true, .ngram = true, .depth = 2});
  Decoder plain(engine, two, {});
  expect_same_bits(plain.prefill(prompt), drafting.prefill(prompt));
  for (const TokenId token : noise) {
    expect_same_bits(plain.advance(token), drafting.advance(token));
    EXPECT_EQ(plain.length(), drafting.length());
  }
  EXPECT_GT(drafting.stats().drafted, 0);
  EXPECT_EQ(plain.stats().drafted, 0);
  drafting.settle();
  EXPECT_EQ(one.length(), two.length());
}

TEST(DecoderTest, DraftsStopAtTheEndOfTheContext) {
  EngineOptions small = options(3);
  Engine probe(demo(), small);
  AnswerRequest request;
  request.prompt = question(probe, "What is 2 + 3?");
  request.ignore_end = true;
  small.context_length = static_cast<std::int64_t>(request.prompt.size()) + 9;
  Engine engine(demo(), small);
  Session session = engine.new_session();
  const GenerateResult result =
      generate(engine, session, request, {.drafts = {.mtp = true, .depth = 3}});
  EXPECT_EQ(result.reason, StopReason::ContextFull);
  EXPECT_EQ(result.tokens.size(), 10u);
  EXPECT_EQ(session.length(), engine.context_length());
}

TEST(DecoderTest, AHeadThatMissedABeginningStillHelps) {
  Engine engine(demo(), options(1));
  const std::vector<TokenId> prompt = question(engine, "What is 12 + 30?");
  Session session = engine.new_session();
  engine.prefill(session, std::span(prompt).first(prompt.size() - 2));  // the head sees nothing
  AnswerRequest request;
  request.prompt = {prompt.end() - 2, prompt.end()};
  request.max_tokens = 40;
  request.ignore_end = true;
  request.sampling.temperature = 0;
  const GenerateResult result =
      generate(engine, session, request, {.drafts = {.mtp = true, .depth = 1}});
  EXPECT_GT(result.drafts.accepted, 3);
}

TEST(DecoderTest, DraftsArePlannedMemory) {
  EngineOptions some = options(kAutoDrafts);
  some.n_sessions = 1;
  Engine engine(demo(), some);
  EXPECT_EQ(engine.max_drafts(), kMostDrafts);
  EXPECT_GT(engine.plan().draft_bytes, 0u);
  Session session = engine.new_session();
  {
    const Decoder decoder(engine, session, {.mtp = true, .ngram = true});
    EXPECT_EQ(engine.memory().by_tag().at("drafts"), engine.plan().draft_bytes);
  }
  EXPECT_EQ(engine.memory().by_tag().at("drafts"), 0u);
  const MemoryPlan& plan = engine.plan();
  some.memory_bytes = Engine(demo(), options(0)).plan().floor_bytes() + (1 << 16);
  ASSERT_LT(some.memory_bytes, plan.fixed_bytes() + plan.floor_cache_bytes);
  EXPECT_LT(plan.floor_bytes(), some.memory_bytes);
  EXPECT_EQ(Engine(demo(), some).max_drafts(), 0);  // rather than to be refused
}

}  // namespace
}  // namespace moeflux
