#include "runtime/forward.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tiny_model.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;
using test::fixture_path;
using test::LoadedModel;
using test::LoadOptions;

// What must not change a single bit of the logits.
class Fixtures : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return fixture_path(GetParam()); }
  std::vector<std::int32_t> prompt() const {
    return test::golden_prompt(path() + "/golden.safetensors");
  }
  std::vector<float> logits(const LoadOptions& options, std::int64_t chunk = 0) const {
    LoadedModel model(path(), options);
    Session session = model.new_session();
    return model.feed(session, prompt(), chunk);
  }
};

TEST_P(Fixtures, NumberOfThreads) {
  const std::vector<float> one = logits({.n_threads = 1});
  for (const int n : {2, 3})
    expect_same_bits(one, logits({.n_threads = n}), std::to_string(n) + " threads");
}

TEST_P(Fixtures, PrefillInPieces) {
  const std::vector<float> whole = logits({});
  for (const std::int64_t chunk : {1, 7}) {
    expect_same_bits(whole, logits({}, chunk), "pieces of " + std::to_string(chunk));
  }
}

TEST_P(Fixtures, SizeOfTheExpertCache) {
  const std::vector<float> resident = logits({});
  for (const std::uint64_t slots : {1, 3}) {
    expect_same_bits(resident, logits({.cache_slots = slots}), std::to_string(slots) + " slots");
    expect_same_bits(resident, logits({.cache_slots = slots}, 5),
                     std::to_string(slots) + " slots, pieces");
  }
}

TEST_P(Fixtures, OtherSessionsInTheBatch) {
  LoadedModel model(path(), {});
  const std::vector<std::int32_t> a = prompt();
  const std::vector<std::int32_t> b = test::Random(3).tokens(19, model.config().n_vocab);
  const auto n_vocab = static_cast<std::size_t>(model.config().n_vocab);
  Session alone_a = model.new_session(), alone_b = model.new_session();
  const std::vector<float> want_a = model.feed(alone_a, a), want_b = model.feed(alone_b, b);

  // Interleaved: both advance by pieces of different length, in changing order, one sometimes
  // absent.
  Session session_a = model.new_session(), session_b = model.new_session();
  std::vector<float> got_a(want_a.size()), got_b(want_b.size());
  std::size_t at_a = 0, at_b = 0;
  for (int step = 0; at_a < a.size() || at_b < b.size(); ++step) {
    const std::size_t n_a = std::min<std::size_t>(step % 4 == 3 ? 0 : 5, a.size() - at_a);
    const std::size_t n_b = std::min<std::size_t>(step % 3, b.size() - at_b);
    Span spans[] = {{&session_a, std::span(a).subspan(at_a, n_a), LogitsOf::EveryToken,
                     &got_a[at_a * n_vocab], nullptr},
                    {&session_b, std::span(b).subspan(at_b, n_b), LogitsOf::EveryToken,
                     got_b.data() + at_b * n_vocab, nullptr}};
    if (at_a >= a.size()) spans[0].logits = nullptr;
    if (step % 2 == 1) std::swap(spans[0], spans[1]);
    model.forward().run(spans);
    at_a += n_a;
    at_b += n_b;
  }
  expect_same_bits(want_a, got_a, "first session");
  expect_same_bits(want_b, got_b, "second session");
  EXPECT_EQ(session_a.length(), static_cast<std::int64_t>(a.size()));
  EXPECT_EQ(session_b.length(), 19);
}

TEST_P(Fixtures, ResetIsLikeNew) {
  LoadedModel model(path(), {});
  Session fresh = model.new_session(), used = model.new_session();
  model.feed(used, test::Random(4).tokens(23, model.config().n_vocab));
  used.reset();
  expect_same_bits(model.feed(fresh, prompt()), model.feed(used, prompt()));
}

TEST_P(Fixtures, LogitsOfTheLastTokenAndHiddenRows) {
  LoadedModel model(path(), {});
  const std::vector<std::int32_t> tokens = prompt();
  const auto n_vocab = static_cast<std::size_t>(model.config().n_vocab);
  Session every = model.new_session(), last = model.new_session(), none = model.new_session();
  const std::vector<float> all = model.feed(every, tokens);
  std::vector<float> one(n_vocab, -1), untouched(n_vocab, -1);
  const Span spans[] = {
      {.session = &last, .tokens = tokens, .logits = one.data()},
      {.session = &none, .tokens = {}, .logits_of = LogitsOf::None, .logits = untouched.data()}};
  model.forward().run(spans);
  expect_same_bits(one, std::span(all).last(n_vocab));
  expect_same_bits(untouched, std::vector<float>(n_vocab, -1.0f));
  EXPECT_EQ(none.length(), 0);
}

class MtpFixtures : public Fixtures {};

TEST_P(MtpFixtures, InPieces) {
  LoadedModel model(path(), {});
  ASSERT_TRUE(model.config().mtp.has_value());
  const std::vector<std::int32_t> tokens = prompt();
  const std::size_t d = static_cast<std::size_t>(model.config().d_model);
  const std::size_t n_vocab = static_cast<std::size_t>(model.config().n_vocab);
  const std::size_t n = tokens.size() - 1;
  std::vector<float> trunk(tokens.size() * d);
  Session first = model.new_session();
  const Span span{&first, tokens, LogitsOf::None, nullptr, trunk.data()};
  model.forward().run({&span, 1});

  const auto drafts = [&](Session& session, std::size_t chunk) {
    std::vector<float> logits(n * n_vocab), hidden(n * d);
    for (std::size_t at = 0; at < n; at += chunk) {
      const std::size_t count = std::min(chunk, n - at);
      model.forward().run_mtp({.session = &session,
                               .hidden = &trunk[at * d],
                               .tokens = std::span(tokens).subspan(at + 1, count),
                               .logits = &logits[at * n_vocab],
                               .out_hidden = &hidden[at * d]});
    }
    EXPECT_EQ(session.mtp_length(), static_cast<std::int64_t>(n));
    logits.insert(logits.end(), hidden.begin(), hidden.end());
    return logits;
  };
  const std::vector<float> whole = drafts(first, n);
  for (const std::size_t chunk : {1, 7}) {
    Session session = model.new_session();
    expect_same_bits(whole, drafts(session, chunk), "pieces of " + std::to_string(chunk));
  }
  first.reset();
  expect_same_bits(whole, drafts(first, 4), "after reset");
}

std::string test_name(const testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Forward, Fixtures, testing::ValuesIn(test::fixture_names()), test_name);
INSTANTIATE_TEST_SUITE_P(Forward, MtpFixtures,
                         testing::Values("dsv3-halfsplit", "mlx-qwen-mixed", "qwen-ratio3"),
                         test_name);

TEST(Forward, EveryFamily) {
  for (const std::string& path : test::family_checkpoints()) {
    const std::vector<std::int32_t> prompt = test::golden_prompt(path + "/golden.safetensors");
    const auto logits = [&](const LoadOptions& options, std::int64_t chunk) {
      LoadedModel model(path, options);
      Session session = model.new_session();
      return model.feed(session, prompt, chunk);
    };
    const std::vector<float> want = logits({}, 0);
    expect_same_bits(want, logits({.n_threads = 2}, 7), path + ", 2 threads, pieces of 7");
    expect_same_bits(want, logits({.isa = "scalar", .cache_slots = 1}, 1),
                     path + ", scalar, 1 slot");
  }
}

// Mixers take long passes in slices: where those end changes nothing.
TEST(Forward, LongPasses) {
  const std::int64_t n = 2 * kMixerSlice + 37;
  for (const char* name : {"qwen-ratio3", "dsv3-halfsplit"}) {
    LoadedModel model(fixture_path(name), {.n_threads = 2, .max_tokens = n, .max_length = n});
    const auto tokens = test::Random(4).tokens(n, model.config().n_vocab);
    Session whole = model.new_session(), pieces = model.new_session();
    expect_same_bits(model.feed(whole, tokens), model.feed(pieces, tokens, 100), name);
  }
}

constexpr std::int64_t kLongPrompt = 1 << 20;

// Which bits a prompt has is decided by its length, not by how it is read.
TEST(Forward, LongPromptsOfLatentAttention) {
  const std::int64_t n = kLatentSlice + 300;
  for (const char* name : {"dsv3-halfsplit", "mlx-dsv3-embedq"}) {
    LoadedModel model(fixture_path(name), {.n_threads = 2, .max_tokens = n, .max_length = n});
    const auto tokens = test::Random(4).tokens(n, model.config().n_vocab);
    Session single = model.new_session(), whole = model.new_session();
    const std::vector<float> absorbed = model.feed(single, tokens, 0, 255);
    const std::vector<float> expanded = model.feed(whole, tokens, 0, n);
    EXPECT_NE(absorbed, expanded) << name;
    test::expect_close(expanded, std::vector<double>(absorbed.begin(), absorbed.end()), 1e-4, name);
    for (const std::int64_t chunk : {100, 700}) {
      Session pieces = model.new_session();
      expect_same_bits(expanded, model.feed(pieces, tokens, chunk, n), name);
    }
  }
}

TEST(Forward, ALongPromptBesideOthers) {
  LoadedModel model(fixture_path("dsv3-halfsplit"), {});
  const auto n_vocab = static_cast<std::size_t>(model.config().n_vocab);
  const auto tokens = [&](int seed) { return test::Random(seed).tokens(20, n_vocab); };
  const std::vector<std::int32_t> inputs[] = {tokens(1), tokens(2), tokens(3), tokens(4)};
  const std::int64_t lengths[] = {0, kLongPrompt, kLongPrompt, 0};
  std::vector<Session> sessions;
  for (int i = 0; i < 4; ++i) sessions.push_back(model.new_session());
  std::vector<float> got(4 * n_vocab);
  std::vector<Span> batch;
  for (std::size_t i = 0; i < 4; ++i) {
    batch.push_back({.session = &sessions[i],
                     .tokens = inputs[i],
                     .logits = got.data() + i * n_vocab,
                     .prompt_tokens = lengths[i]});
  }
  model.forward().run(batch);
  for (std::size_t i = 0; i < 4; ++i) {
    Session alone = model.new_session();
    const std::vector<float> want = model.feed(alone, inputs[i], 0, lengths[i]);
    expect_same_bits(std::span(want).last(n_vocab), std::span(got).subspan(i * n_vocab, n_vocab));
  }
}

// 2 x 32 - 16 - 24 multiplications are saved for a query and a key, and 32 x 40 spent for a key.
TEST(Forward, WhichPromptsAreExpanded) {
  MlaSpec spec{};
  spec.kv_rank = 32, spec.d_nope = 16, spec.d_value = 24;
  EXPECT_FALSE(Forward::expands(spec, 0));
  EXPECT_FALSE(Forward::expands(spec, 255));
  EXPECT_TRUE(Forward::expands(spec, 256));
  spec.kv_rank = 21;  // saved: 2, spent: 840
  EXPECT_FALSE(Forward::expands(spec, 419));
  EXPECT_TRUE(Forward::expands(spec, 420));
  spec.kv_rank = 20;  // nothing is saved
  EXPECT_FALSE(Forward::expands(spec, 1 << 30));
}

TEST(Forward, DraftsAtTheEndOfASlice) {
  for (const char* name : {"qwen-ratio3", "dsv3-halfsplit"}) {
    LoadedModel model(fixture_path(name),
                      {.max_tokens = kMixerSlice + 50, .max_length = kMixerSlice + 50});
    const auto n_vocab = static_cast<std::size_t>(model.config().n_vocab);
    const auto a = test::Random(5).tokens(kMixerSlice - 2, model.config().n_vocab);
    const auto b = test::Random(6).tokens(5, model.config().n_vocab);  // the last three are drafts
    const auto drafting = [&] { return model.new_session({.max_length = 60, .max_drafts = 3}); };
    Session alone_a = model.new_session(), alone_b = drafting();
    Session batched_a = model.new_session(), batched_b = drafting();
    std::vector<float> want(2 * n_vocab), got(2 * n_vocab);
    const auto spans = [&](Session& first, Session& second, std::vector<float>& logits) {
      return std::vector<Span>{
          {.session = &first, .tokens = a, .logits = logits.data()},
          {.session = &second, .tokens = b, .logits = logits.data() + n_vocab, .n_drafts = 3}};
    };
    for (const Span& span : spans(alone_a, alone_b, want)) model.forward().run({&span, 1});
    model.forward().run(spans(batched_a, batched_b, got));
    expect_same_bits(want, got, name);
    // What was kept before each draft is right as well.
    for (Session* session : {&alone_b, &batched_b}) session->take_back(2);
    const auto next = test::Random(7).tokens(4, model.config().n_vocab);
    expect_same_bits(model.feed(alone_b, next), model.feed(batched_b, next), name);
  }
}

TEST(Forward, RandomShapesInPiecesAndWithFewExperts) {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    const test::TempDir dir;
    test::Random random(seed);
    seed % 2 == 0 ? test::write_random_qwen(random, dir.path())
                  : test::write_random_deepseek(random, dir.path());
    LoadedModel plenty(dir.path(), {}), scarce(dir.path(), {.n_threads = 3, .cache_slots = 1});
    const auto tokens = random.tokens(24, plenty.config().n_vocab);
    Session a = plenty.new_session(), b = scarce.new_session();
    expect_same_bits(plenty.feed(a, tokens), scarce.feed(b, tokens, 5),
                     "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace moeflux
