#include "engine/text_reading.h"

#include <cmath>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

EngineOptions options(std::int64_t max_batch = 64) {
  EngineOptions options;
  options.n_threads = 1;
  options.context_length = 512;
  options.max_batch = max_batch;
  options.memory_bytes = std::uint64_t{1} << 30;
  options.elastic = false;
  return options;
}

std::vector<TokenId> text(const Engine& engine, int n_words) {
  std::string words = "Once upon a time";
  for (int i = 0; i < n_words; ++i) words += " there was a frog";
  return engine.tokenizer().encode_data(words);
}

std::vector<float> read(Engine& engine, const std::vector<TokenId>& tokens, ReadingKind kind,
                        int* n_passes = nullptr) {
  TextReading reading(engine, static_cast<std::int64_t>(tokens.size()));
  reading.begin(tokens, kind);
  int n = 1;
  while (reading.step()) ++n;
  if (n_passes != nullptr) *n_passes = n;
  return reading.result();
}

class TextReadingTest : public testing::TestWithParam<const char*> {
 protected:
  Engine engine_{test::source_path(GetParam()), options()};
};

// What the engine's other way of reading a prompt gives.
TEST_P(TextReadingTest, IsWhatAPromptIsReadAs) {
  const std::vector<TokenId> tokens = text(engine_, 6);
  const auto d = static_cast<std::size_t>(engine_.config().d_model);
  std::vector<float> hidden(tokens.size() * d);
  std::vector<float> logits(static_cast<std::size_t>(engine_.config().n_vocab));
  Session session = engine_.new_session();
  std::size_t row = 0;
  engine_.prefill(session, tokens, logits, {.cancelled = {}, .hidden = [&](std::int64_t n) {
                                              float* at = hidden.data() + row * d;
                                              row += static_cast<std::size_t>(n);
                                              return at;
                                            }});
  EXPECT_EQ(read(engine_, tokens, ReadingKind::Last),
            std::vector<float>(hidden.end() - static_cast<std::ptrdiff_t>(d), hidden.end()));
  logits.resize(static_cast<std::size_t>(engine_.n_sampled()));
  EXPECT_EQ(read(engine_, tokens, ReadingKind::Logits), logits);
  const std::vector<float> mean = read(engine_, tokens, ReadingKind::Mean);
  for (std::size_t i = 0; i < d; ++i) {
    double sum = 0;
    for (std::size_t t = 0; t < tokens.size(); ++t) sum += static_cast<double>(hidden[t * d + i]);
    EXPECT_EQ(mean[i], static_cast<float>(sum / static_cast<double>(tokens.size())));
  }
}

TEST_P(TextReadingTest, PassesDoNotMatter) {
  Engine other(test::source_path(GetParam()), options(17));
  const std::vector<TokenId> tokens = text(engine_, 60);
  for (const ReadingKind kind : {ReadingKind::Mean, ReadingKind::Last, ReadingKind::Logits}) {
    int n_passes = 0, n_other = 0;
    EXPECT_EQ(read(engine_, tokens, kind, &n_passes), read(other, tokens, kind, &n_other));
    EXPECT_LT(n_passes, n_other);
  }
}

TEST_P(TextReadingTest, OneAfterTheOther) {
  const std::vector<TokenId> first = text(engine_, 9), second = text(engine_, 2);
  TextReading reading(engine_, static_cast<std::int64_t>(first.size()));
  for (const auto* tokens : {&second, &first, &second}) {
    reading.begin(*tokens, ReadingKind::Mean);
    while (reading.step()) {
    }
    EXPECT_EQ(reading.result(), read(engine_, *tokens, ReadingKind::Mean));
  }
}

TEST_P(TextReadingTest, GivesItsMemoryBack) {
  const std::uint64_t before = engine_.memory().available();
  {
    const TextReading reading(engine_, 100);
    EXPECT_LT(engine_.memory().available(), before);
  }
  EXPECT_EQ(engine_.memory().available(), before);
}

TEST_P(TextReadingTest, MayBeCancelled) {
  const std::vector<TokenId> tokens = text(engine_, 3);
  TextReading reading(engine_, 200);
  reading.begin(tokens, ReadingKind::Mean);
  test::expect_error(Errc::Cancelled, {}, [&] { reading.step([] { return true; }); });
  reading.begin(tokens, ReadingKind::Mean);  // and begins anew
  while (reading.step()) {
  }
  EXPECT_EQ(reading.result(), read(engine_, tokens, ReadingKind::Mean));
}

INSTANTIATE_TEST_SUITE_P(Models, TextReadingTest, testing::Values("models/demo", "models/demo-mla"),
                         [](const auto& model) {
                           return std::string(model.param) == "models/demo" ? "Demo" : "DemoMla";
                         });

TEST(Normalize, LengthOne) {
  std::vector<float> vector{3, 0, -4};
  normalize(vector);
  EXPECT_EQ(vector, (std::vector<float>{0.6f, 0, -0.8f}));
  std::vector<float> zeros(3);
  normalize(zeros);
  EXPECT_EQ(zeros, std::vector<float>(3));
}

}  // namespace
}  // namespace moeflux
