// Going back: a session that has gone back and forth computes what one computes that never did.
#include <gtest/gtest.h>

#include "runtime/session.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::expect_same_bits;
using test::fixture_path;
using test::LoadedModel;

constexpr const char* kHybrid = "qwen-ratio3";
constexpr const char* kLatent = "dsv3-kimi";

class Rewind : public testing::Test {
 protected:
  Session session(LoadedModel& model, int n_checkpoints, int max_drafts = 0) {
    return model.new_session(
        {.max_length = 160, .n_checkpoints = n_checkpoints, .max_drafts = max_drafts});
  }
  std::vector<float> fresh(LoadedModel& model, std::span<const TokenId> tokens) {
    Session one = session(model, 0);
    return last_row(model, model.feed(one, tokens));
  }
  std::vector<float> last_row(LoadedModel& model, std::span<const float> rows) {
    const auto last = rows.last(static_cast<std::size_t>(model.config().n_vocab));
    return {last.begin(), last.end()};
  }
  std::vector<TokenId> tokens(LoadedModel& model, int n, std::uint64_t seed) {
    return test::Random(seed).tokens(n, model.config().n_vocab);
  }
};

TEST_F(Rewind, BranchesFromACheckpointAreThoseOfAFreshSession) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 2);
  ASSERT_TRUE(one.is_recurrent());
  const auto prefix = tokens(model, 11, 1), left = tokens(model, 7, 2), right = tokens(model, 5, 3);
  model.feed(one, prefix);
  one.checkpoint();
  for (const auto& branch : {left, right, left}) {
    const auto ours = model.feed(one, branch, 3);
    std::vector<TokenId> all = prefix;
    all.insert(all.end(), branch.begin(), branch.end());
    EXPECT_TRUE(std::equal(all.begin(), all.end(), one.tokens().begin(), one.tokens().end()));
    expect_same_bits(fresh(model, all), last_row(model, ours));
    one.rewind(11);
    EXPECT_EQ(one.length(), 11);
  }
  one.rewind(0);  // needs no checkpoint
  expect_same_bits(fresh(model, right), last_row(model, model.feed(one, right)));
}

TEST_F(Rewind, ARecurrentSessionSaysWhereItCanGo) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 2);
  model.feed(one, tokens(model, 10, 1));
  one.checkpoint();
  model.feed(one, tokens(model, 10, 2));
  EXPECT_EQ(one.nearest_rewind(20), 20);
  EXPECT_EQ(one.nearest_rewind(19), 10);
  EXPECT_EQ(one.nearest_rewind(10), 10);
  EXPECT_EQ(one.nearest_rewind(9), 0);
  const std::vector<TokenId> before(one.tokens().begin(), one.tokens().end());
  expect_error(Errc::NotFound, {"15", "20", "10"}, [&] { one.rewind(15); });
  expect_error(Errc::NotFound, {"21"}, [&] { one.rewind(21); });
  expect_error(Errc::NotFound, {"-1"}, [&] { one.rewind(-1); });
  EXPECT_EQ(std::vector<TokenId>(one.tokens().begin(), one.tokens().end()), before);
}

TEST_F(Rewind, KeysAndValuesAreCutAnywhere) {
  LoadedModel model(fixture_path(kLatent));
  Session one = session(model, 0);
  ASSERT_FALSE(one.is_recurrent());
  auto all = tokens(model, 20, 1);
  model.feed(one, all);
  EXPECT_EQ(one.nearest_rewind(13), 13);
  one.rewind(13);
  const auto more = tokens(model, 4, 2);
  all.resize(13);
  all.insert(all.end(), more.begin(), more.end());
  expect_same_bits(fresh(model, all), last_row(model, model.feed(one, more)));
}

TEST_F(Rewind, GoingBackDropsLaterCheckpointsAndKeepsEarlierOnes) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 4);
  for (int i = 0; i < 3; ++i) {
    model.feed(one, tokens(model, 5, 1));
    one.checkpoint();
  }
  one.rewind(10);
  EXPECT_EQ(one.checkpoints(), (std::vector<std::int64_t>{5, 10}));
  one.forget_checkpoint(5);
  one.forget_checkpoint(6);  // none there
  EXPECT_EQ(one.checkpoints(), (std::vector<std::int64_t>{10}));
  one.reset();
  EXPECT_TRUE(one.checkpoints().empty());
}

TEST_F(Rewind, TheOldestCheckpointGoesFirstButNeverThatOfTheStart) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 3);
  one.checkpoint();
  for (int i = 0; i < 4; ++i) {
    model.feed(one, tokens(model, 2, 1));
    one.checkpoint();
  }
  EXPECT_EQ(one.checkpoints(), (std::vector<std::int64_t>{0, 6, 8}));
  one.set_max_checkpoints(2);
  EXPECT_EQ(one.checkpoints().size(), 3u);  // not before the next
  model.feed(one, tokens(model, 2, 1));
  one.checkpoint();
  EXPECT_EQ(one.checkpoints(), (std::vector<std::int64_t>{0, 10}));
  one.checkpoint();  // once more at the same place
  EXPECT_EQ(one.checkpoints(), (std::vector<std::int64_t>{0, 10}));
}

TEST_F(Rewind, CheckpointsAreReservedMemory) {
  LoadedModel model(fixture_path(kHybrid));
  const std::uint64_t state = Session::recurrent_bytes(model.config());
  ASSERT_GT(state, 0u);
  EXPECT_EQ(Session::bytes_needed(model.config(), {.max_length = 160, .n_checkpoints = 2}),
            Session::bytes_needed(model.config(), {.max_length = 160}) + 2 * state);
  MemoryBudget budget(Session::bytes_needed(model.config(), {.max_length = 160}) + 3 * state);
  Session one(model.config(), {.max_length = 160, .n_checkpoints = 1}, model.backend(), budget);
  one.set_max_checkpoints(3);
  EXPECT_EQ(budget.available(), 0u);
  expect_error(Errc::OutOfMemory, {"context"}, [&] { one.set_max_checkpoints(4); });
  one.set_max_checkpoints(0);
  EXPECT_EQ(budget.available(), 2 * state);
  expect_error(Errc::BadInput, {"-1"}, [&] { one.set_max_checkpoints(-1); });
}

TEST_F(Rewind, APoisonedSessionGoesBackToACheckpoint) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 1);
  const auto prefix = tokens(model, 6, 1), more = tokens(model, 3, 2);
  model.feed(one, prefix);
  one.checkpoint();
  one.begin(1);  // and never committed
  EXPECT_TRUE(one.is_poisoned());
  one.rewind(6);
  std::vector<TokenId> all = prefix;
  all.insert(all.end(), more.begin(), more.end());
  expect_same_bits(fresh(model, all), last_row(model, model.feed(one, more)));
}

TEST_F(Rewind, DraftsTakenBackLeaveNoTrace) {
  for (const char* name : {kHybrid, kLatent}) {
    LoadedModel model(fixture_path(name));
    const auto n_vocab = static_cast<std::size_t>(model.config().n_vocab);
    const auto prompt = tokens(model, 9, 1), drafted = tokens(model, 4, 2),
               more = tokens(model, 3, 3);
    for (std::int64_t n_wrong = 0; n_wrong <= 3; ++n_wrong) {
      Session one = session(model, 0, 3);
      model.feed(one, prompt);
      std::vector<float> rows(4 * n_vocab);
      const Span span{.session = &one,
                      .tokens = drafted,
                      .logits_of = LogitsOf::EveryToken,
                      .logits = rows.data(),
                      .n_drafts = 3};
      model.forward().run({&span, 1});
      one.take_back(n_wrong);
      std::vector<TokenId> all = prompt;
      all.insert(all.end(), drafted.begin(), drafted.end() - n_wrong);
      EXPECT_TRUE(std::equal(all.begin(), all.end(), one.tokens().begin(), one.tokens().end()));
      const auto kept = static_cast<std::size_t>(3 - n_wrong);
      expect_same_bits(fresh(model, all), std::span(rows).subspan(kept * n_vocab, n_vocab));
      all.insert(all.end(), more.begin(), more.end());
      expect_same_bits(fresh(model, all), last_row(model, model.feed(one, more)));
    }
  }
}

// Broken off before any layer, a session that keeps a copy is what it was.
TEST_F(Rewind, APassThatIsBrokenOffLeavesNoTrace) {
  for (const char* name : {kHybrid, kLatent}) {
    LoadedModel model(fixture_path(name));
    const auto prompt = tokens(model, 9, 1), lost = tokens(model, 6, 2), more = tokens(model, 5, 3);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), more.begin(), more.end());
    const auto want = fresh(model, all);
    for (int layer = 0; layer < model.config().n_layers(); ++layer) {
      Session one = session(model, 0, 1);
      ASSERT_TRUE(one.can_keep_before());
      model.feed(one, prompt);
      const Span span{
          .session = &one, .tokens = lost, .logits_of = LogitsOf::None, .undo_on_failure = true};
      int n_asked = 0;
      expect_error(Errc::Cancelled, {}, [&] {
        model.forward().run({&span, 1}, nullptr, [&] { return n_asked++ == layer; });
      });
      EXPECT_EQ(n_asked, layer + 1);
      EXPECT_FALSE(one.is_poisoned());
      EXPECT_EQ(one.length(), 9);
      expect_same_bits(want, last_row(model, model.feed(one, more)));
    }
  }
}

TEST_F(Rewind, WithoutACopyABrokenPassPoisonsWhatIsRecurrent) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 0);
  EXPECT_FALSE(one.can_keep_before());
  const auto prompt = tokens(model, 9, 1);
  const auto break_off = [&](int layer) {
    const Span span{.session = &one, .tokens = prompt, .logits_of = LogitsOf::None};
    int n_asked = 0;
    expect_error(Errc::Cancelled, {}, [&] {
      model.forward().run({&span, 1}, nullptr, [&] { return n_asked++ == layer; });
    });
  };
  break_off(0);  // nothing has run
  EXPECT_FALSE(one.is_poisoned());
  break_off(model.config().n_layers() - 1);
  EXPECT_TRUE(one.is_poisoned());
  one.reset();
  expect_same_bits(fresh(model, prompt), last_row(model, model.feed(one, prompt)));
}

TEST_F(Rewind, AdoptTakesOverWhatWasWritten) {
  LoadedModel model(fixture_path(kHybrid));
  Session one = session(model, 1);
  model.feed(one, tokens(model, 4, 1));
  one.checkpoint();
  const std::vector<TokenId> others{3, kUnknownToken, 5};
  one.adopt(others, 1, 2);
  EXPECT_TRUE(std::equal(others.begin(), others.end(), one.tokens().begin(), one.tokens().end()));
  EXPECT_EQ(one.mtp_length(), 2);
  EXPECT_EQ(one.mtp_start(), 1);
  EXPECT_TRUE(one.checkpoints().empty());
}

}  // namespace
}  // namespace moeflux
