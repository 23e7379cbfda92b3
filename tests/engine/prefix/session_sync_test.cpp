// A session that was brought back goes on as one that has read everything itself.
#include "engine/prefix/session_sync.h"

#include "engine/prefix/session_sync_fixture.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;
using test::expect_synced;
using test::Positions;
using test::Process;
using test::SessionSyncTest;
using test::small_options;

class EveryCache : public testing::TestWithParam<std::tuple<const char*, KvType>> {};

TEST_P(EveryCache, ARestoredSessionContinuesBitForBit) {
  const auto [model, kv] = GetParam();
  const test::TempDir directory;
  Positions positions = {5, 31, 48, 70, 99};
  std::vector<TokenId> tokens;
  {
    Process writer(model, directory.path(), small_options(kv));
    tokens = writer.tokens(100);
    writer.remember_at(tokens, positions);
    EXPECT_EQ(writer.store.warning(), "");
  }
  Process reader(model, directory.path(), small_options(kv));
  const std::vector<float> expected = reader.fresh_logits(tokens);
  for (const std::int64_t position : positions) {
    // Other tokens from there on, so that no later state fits.
    std::vector<TokenId> prompt = tokens;
    if (position < 99) prompt[static_cast<std::size_t>(position)] ^= 1;
    Session session = reader.engine.new_session();
    expect_synced(reader.sync.sync(session, prompt), position, PrefixOrigin::Store);
    EXPECT_TRUE(std::equal(session.tokens().begin(), session.tokens().end(), prompt.begin()));
    expect_same_bits(reader.logits(session, prompt),
                     position < 99 ? reader.fresh_logits(prompt) : expected);
  }
  EXPECT_EQ(reader.store.stats().files_damaged, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryCache,
                         testing::Combine(testing::Values("models/demo", "models/demo-mla"),
                                          testing::ValuesIn(kAllKvTypes)),
                         [](const auto& given) {
                           const bool mla = std::string(std::get<0>(given.param)).ends_with("mla");
                           return (mla ? "Mla" : "Hybrid") +
                                  std::string(kv_type_name(std::get<1>(given.param)));
                         });

TEST_F(SessionSyncTest, AtLeastTheLastTokenIsLeftToRun) {
  Process process("models/demo", directory_.path());
  const std::vector<TokenId> tokens = process.tokens(40);
  process.remember_at(tokens, {20, 40});
  Session session = process.engine.new_session();
  expect_synced(process.sync.sync(session, tokens), 20, PrefixOrigin::Store);
  expect_synced(process.sync.sync(session, std::span(tokens).first(20)), 0, PrefixOrigin::Nothing);
  std::vector<TokenId> longer = tokens;
  longer.push_back(1);
  expect_synced(process.sync.sync(session, longer), 40, PrefixOrigin::Store);
  expect_synced(process.sync.sync(session, std::span(tokens).first(1)), 0, PrefixOrigin::Nothing);
  expect_synced(process.sync.sync(session, {}), 0, PrefixOrigin::Nothing);
  EXPECT_EQ(session.length(), 0);
}

TEST_F(SessionSyncTest, WithoutRecurrentLayersBlocksAloneSuffice) {
  Process process("models/demo-mla", directory_.path());
  const std::vector<TokenId> tokens = process.tokens(60);
  process.remember_at(tokens, {60});
  EXPECT_EQ(files(".kv").size(), 3u);
  EXPECT_EQ(files(".state").size(), 1u);
  for (const auto& [n, expected] : {std::pair{60, 48}, {48, 32}, {49, 48}, {17, 16}, {16, 0}}) {
    Session session = process.engine.new_session();
    EXPECT_EQ(
        process.sync.sync(session, std::span(tokens).first(static_cast<std::size_t>(n))).n_tokens,
        expected)
        << n;
  }
  process.remember_at(process.tokens(48, 8), {48});
  EXPECT_EQ(files(".state").size(), 1u);  // at the end of a block there is nothing left to keep
}

TEST_F(SessionSyncTest, WhatReachesFurthestIsTaken) {
  Process process("models/demo", directory_.path(), small_options(KvType::F32, 2));
  const std::vector<TokenId> tokens = process.tokens(100);
  process.remember_at(tokens, {30, 80});

  // What the session holds, as it is.
  Session session = process.engine.new_session();
  process.engine.prefill(session, std::span(tokens).first(90));
  expect_synced(process.sync.sync(session, tokens), 90, PrefixOrigin::Session);
  // Back to 85 it cannot, but there is a checkpoint at 40 and a state at 80.
  session.reset();
  process.engine.prefill(session, std::span(tokens).first(40));
  session.checkpoint();
  process.engine.prefill(session, std::span(tokens).subspan(40, 50));
  expect_synced(process.sync.sync(session, std::span(tokens).first(86)), 80, PrefixOrigin::Store);
  EXPECT_EQ(session.checkpoints(), Positions{80});
  // Of two the checkpoint is nearer than the state at 30.
  session.reset();
  process.engine.prefill(session, std::span(tokens).first(40));
  session.checkpoint();
  process.engine.prefill(session, std::span(tokens).subspan(40, 20));
  expect_synced(process.sync.sync(session, std::span(tokens).first(50)), 40,
                PrefixOrigin::Checkpoint);
  expect_same_bits(process.logits(session, std::span(tokens).first(50)),
                   process.fresh_logits(std::span(tokens).first(50)));
}

TEST_F(SessionSyncTest, BlocksTheSessionHasAreNotReadAgain) {
  Process process("models/demo", directory_.path());
  const std::vector<TokenId> tokens = process.tokens(100);
  process.remember_at(tokens, {80});
  Session session = process.engine.new_session();
  process.engine.prefill(session, std::span(tokens).first(50));
  const std::uint64_t before = process.store.stats().files_read;
  expect_synced(process.sync.sync(session, tokens), 80, PrefixOrigin::Store);
  EXPECT_EQ(process.store.stats().files_read - before, 3u);  // blocks to 64 and 80, and the state
  expect_same_bits(process.logits(session, tokens), process.fresh_logits(tokens));
}

TEST_F(SessionSyncTest, ASessionThatFailedStartsOver) {
  Process process("models/demo", directory_.path());
  const std::vector<TokenId> tokens = process.tokens(60);
  process.remember_at(tokens, {40});
  Session session = process.engine.new_session();
  process.engine.prefill(session, std::span(tokens).first(50));
  session.begin(1);
  ASSERT_TRUE(session.is_poisoned());
  EXPECT_FALSE(process.sync.remember(session));
  expect_synced(process.sync.sync(session, tokens), 40, PrefixOrigin::Store);
  expect_same_bits(process.logits(session, tokens), process.fresh_logits(tokens));
}

TEST_F(SessionSyncTest, BlocksAreSharedAndWrittenOnce) {
  Process process("models/demo", directory_.path());
  std::vector<TokenId> tokens = process.tokens(100);
  process.remember_at(tokens, {70});
  EXPECT_EQ(files(".kv").size(), 4u);
  EXPECT_EQ(files(".state").size(), 2u);  // 64 is a multiple of the interval
  const std::uint64_t before = process.store.stats().bytes_written;
  process.remember_at(tokens, {70});
  EXPECT_EQ(process.store.stats().bytes_written, before);
  tokens[69] ^= 1;  // after the blocks
  process.remember_at(tokens, {70});
  EXPECT_EQ(files(".kv").size(), 4u);
  EXPECT_EQ(files(".state").size(), 3u);
}

TEST_F(SessionSyncTest, TokensThatAreNotKnownAreNotKept) {
  Process process("models/demo", directory_.path());
  Session session = process.engine.new_session();
  const std::vector<TokenId> tokens = {1, kUnknownToken, 2};
  session.adopt(tokens);
  EXPECT_FALSE(process.sync.remember(session));
  EXPECT_TRUE(files().empty());
}

TEST_F(SessionSyncTest, OtherModelsTypesAndPrecisionsAreApart) {
  Process first("models/demo", directory_.path());
  const std::vector<TokenId> tokens = first.tokens(40);
  first.remember_at(tokens, {30});
  EngineOptions exact = small_options();
  exact.precision = Precision::Exact;
  Process second("models/demo", directory_.path(), exact);
  Process third("models/demo", directory_.path(), small_options(KvType::F16));
  Process fourth("models/demo-mla", directory_.path());
  for (Process* process : {&second, &third, &fourth}) {
    Session session = process->engine.new_session();
    EXPECT_EQ(process->sync.sync(session, tokens).n_tokens, 0);
  }
  // Threads, passes and the size of the context change no bit.
  EngineOptions other = small_options();
  other.n_threads = 2;
  other.max_batch = 7;
  other.context_length = 50;
  Process fifth("models/demo", directory_.path(), other);
  Session session = fifth.engine.new_session();
  EXPECT_EQ(fifth.sync.sync(session, tokens).n_tokens, 30);
}

TEST_F(SessionSyncTest, AContextThatIsTooShortTakesWhatFits) {
  Process writer("models/demo", directory_.path());
  const std::vector<TokenId> tokens = writer.tokens(100);
  writer.remember_at(tokens, {20, 80});
  EngineOptions options = small_options();
  options.context_length = 48;
  Process reader("models/demo", directory_.path(), options);
  Session session = reader.engine.new_session();
  expect_synced(reader.sync.sync(session, tokens), 20, PrefixOrigin::Store);
}

TEST_F(SessionSyncTest, LongPromptsAreKeptOnTheWay) {
  Process process("models/demo", directory_.path());
  const std::vector<TokenId> tokens = process.tokens(140);
  Session session = process.engine.new_session();
  try {
    process.sync.prefill(session, tokens, {}, [&] { return session.length() >= 128; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Cancelled);
  }
  Session other = process.engine.new_session();
  expect_synced(process.sync.sync(other, tokens), 128, PrefixOrigin::Store);
  expect_same_bits(process.logits(other, tokens), process.fresh_logits(tokens));
}

TEST_F(SessionSyncTest, WithoutAStoreThereIsMemory) {
  Process process("models/demo", directory_.path(), small_options(KvType::F32, 2));
  SessionSync sync(process.engine, nullptr);
  const std::vector<TokenId> tokens = process.tokens(60);
  Session session = process.engine.new_session();
  expect_synced(sync.sync(session, tokens), 0, PrefixOrigin::Nothing);
  const std::vector<std::int64_t> points = {30, 50};
  sync.prefill(session, tokens, points);
  expect_synced(sync.sync(session, std::span(tokens).first(45)), 30, PrefixOrigin::Checkpoint);
  expect_same_bits(process.logits(session, std::span(tokens).first(45)),
                   process.fresh_logits(std::span(tokens).first(45)));
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace moeflux
