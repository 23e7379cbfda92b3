// A prompt far longer than anything the bundled model was trained on, within the memory planned for
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/verify/evaluate.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux::test {
namespace {

constexpr std::int64_t kLength = 4096;

std::vector<float> last_logits(const EngineOptions& options, std::span<const TokenId> tokens,
                               std::size_t n_single) {
  Engine engine(source_path("models/demo"), options);
  Session session = engine.new_session();
  EXPECT_EQ(engine.memory().by_tag().at("context"), engine.plan().context_bytes);
  std::vector<float> logits = engine.prefill(session, tokens.first(tokens.size() - n_single));
  for (const TokenId token : tokens.last(n_single)) {
    const Span span{.session = &session, .tokens = {&token, 1}, .logits = logits.data()};
    engine.run({&span, 1});
  }
  EXPECT_EQ(session.length(), static_cast<std::int64_t>(tokens.size()));
  return logits;
}

// Passes of other sizes end in other blocks of keys, and one token at a time splits keys over
// threads.
TEST(LongContextTest, PiecesAndThreadsDoNotMatter) {
  const std::vector<TokenId> tokens = Random(1).tokens(kLength, 2000);
  EngineOptions options{.n_threads = 2, .context_length = kLength};
  const std::vector<float> want = last_logits(options, tokens, 0);
  options.n_threads = 3;
  options.max_batch = 200;
  expect_same_bits(want, last_logits(options, tokens, 24), "pieces of 200 and 1");
}

struct Needle {
  std::string question, answer;
};

// Forty facts and the question for one of them.
Needle needle(std::span<const std::string_view> things, int asked) {
  const char* colors[] = {"red", "blue", "green", "yellow", "white", "black", "brown", "purple"};
  Needle result;
  std::string question;
  for (int i = 0; i < 40; ++i) {
    const std::string name =
        fmt::format("{} {}", colors[i % 8], things[static_cast<std::size_t>(i / 8)]);
    const std::string fact = fmt::format("The code of the {} is {}.", name, 1000 + i * 211 % 9000);
    result.question += fact + " ";
    if (i != asked) continue;
    result.answer = fact;
    question = fmt::format("What is the code of the {}?", name);
  }
  result.question += question;
  return result;
}

// Behind a first round of facts about other things, all types of cache find the same answer.
TEST(LongContextTest, NeedlesAreFoundInEveryTypeOfCache) {
  const std::string_view others[] = {"cup", "ball", "hat", "kite", "drum"},
                         things[] = {"lamp", "key", "book", "map", "coin"};
  const Needle first = needle(others, 5);
  for (const KvType type : kAllKvTypes) {
    Engine engine(source_path("models/demo"), {.context_length = 2048, .kv_type = type});
    Session session = engine.new_session();
    for (const int asked : {3, 20}) {
      const Needle second = needle(things, asked);
      const AnswerCase chat{.messages = {{{"role", "user"}, {"content", first.question}},
                                         {{"role", "assistant"}, {"content", first.answer}},
                                         {{"role", "user"}, {"content", second.question}}},
                            .tools = nullptr,
                            .enable_thinking = false,
                            .prompt_ids = {},
                            .greedy_ids = {},
                            .want = second.answer};
      EXPECT_EQ(check_answer(engine, session, chat).text, second.answer) << kv_type_name(type);
      EXPECT_GT(session.length(), 1000);
    }
  }
}

}  // namespace
}  // namespace moeflux::test
