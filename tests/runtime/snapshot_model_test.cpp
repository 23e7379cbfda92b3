// Snapshots of real sessions: a restored one continues bit for bit as the written one.
#include <cstring>

#include <gtest/gtest.h>

#include "runtime/snapshot_support.h"
#include "source/model_identity.h"
#include "support/loaded_model.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::Bytes;
using test::LoadedModel;
using test::memory_of;
using enum SnapshotVersion;

// name of the model, KV type
using Param = std::tuple<const char*, KvType>;

class SnapshotModels : public testing::TestWithParam<Param> {
 protected:
  SnapshotModels()
      : path_(test::source_path(std::string("models/") + std::get<0>(GetParam()))),
        model_(path_, {.max_length = 80, .kv_type = std::get<1>(GetParam())}),
        identity_(model_identity(*open_source(path_))) {}

  SnapshotModel snapshot() const { return {&model_.config(), identity_}; }
  Session session() { return model_.new_session(); }

  // 16 tokens more, each after a pass of its own.
  std::vector<float> more(Session& session) {
    test::Random random(9);
    return model_.feed(session, random.tokens(16, 500), 1);
  }

  std::string path_;
  LoadedModel model_;
  std::string identity_;
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_P(SnapshotModels, ARestoredSessionContinuesBitForBit) {
  const test::TempDir dir;
  test::Random random(5);
  Session from = session();
  model_.feed(from, random.tokens(37, 500));
  const Bytes bytes = test::written(from, snapshot(), V3);
  save_snapshot(dir.file("s"), from, snapshot());
  const auto image = memory_of(from);
  const std::vector<float> want = more(from);

  Session fresh = session();
  read_snapshot(fresh, snapshot(), bytes);
  EXPECT_TRUE(memory_of(fresh) == image);
  expect_same_bits(more(fresh), want);
  EXPECT_TRUE(std::equal(fresh.tokens().begin(), fresh.tokens().end(), from.tokens().begin(),
                         from.tokens().end()));

  load_snapshot(dir.file("s"), from, snapshot());  // over a longer one
  EXPECT_TRUE(memory_of(from) == image);
  expect_same_bits(more(from), want);
}

TEST_P(SnapshotModels, OldVersionsContinueBitForBitUnlessTheyRound) {
  const bool mla = std::string_view(std::get<0>(GetParam())) == "demo-mla";
  test::Random random(5);
  Session from = session();
  model_.feed(from, random.tokens(37, 500));
  std::vector<Bytes> files = {test::written(from, snapshot(), V2)};
  if (!mla) files.push_back(test::written(from, snapshot(), V1));
  const std::vector<float> want = more(from);
  for (const Bytes& file : files) {
    Session fresh = session();
    read_snapshot(fresh, snapshot(), file);
    EXPECT_EQ(fresh.length(), 37);
    const std::vector<float> got = more(fresh);
    if (std::get<1>(GetParam()) == KvType::Q8) {
      for (const float logit : got) ASSERT_TRUE(std::isfinite(logit));
    } else {
      expect_same_bits(got, want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Demo, SnapshotModels,
                         testing::Combine(testing::Values("demo", "demo-mla"),
                                          testing::ValuesIn(kAllKvTypes)),
                         [](const auto& test) {
                           const bool mla = std::string_view(std::get<0>(test.param)) == "demo-mla";
                           return std::string(mla ? "mla_" : "hybrid_") +
                                  std::string(kv_type_name(std::get<1>(test.param)));
                         });

// The head's rows come back with the session.
TEST(SnapshotMtp, TheHeadContinuesBitForBit) {
  const std::string path = test::source_path("models/demo");
  LoadedModel model(path);
  const std::string identity = model_identity(*open_source(path));
  const SnapshotModel snapshot{&model.config(), identity};
  test::Random random(5);
  const auto tokens = random.tokens(30, 500);
  const auto d = static_cast<std::size_t>(model.config().d_model);
  const auto n_vocab = static_cast<std::size_t>(model.config().n_vocab);
  Session from = model.new_session();
  std::vector<float> hidden(tokens.size() * d);
  const Span span{.session = &from,
                  .tokens = tokens,
                  .logits_of = LogitsOf::None,
                  .logits = nullptr,
                  .hidden = hidden.data()};
  model.forward().run({&span, 1});
  const auto head = [&](Session& session, std::size_t first, std::size_t n) {
    std::vector<float> logits(n * n_vocab);
    model.forward().run_mtp({.session = &session,
                             .hidden = hidden.data() + first * d,
                             .tokens = std::span(tokens).subspan(first + 1, n),
                             .logits = logits.data()});
    return logits;
  };
  head(from, 0, 20);
  const Bytes bytes = test::written(from, snapshot, V3);
  const std::vector<float> want = head(from, 20, 9);
  Session to = model.new_session();
  read_snapshot(to, snapshot, bytes);
  EXPECT_EQ(to.mtp_length(), 20);
  expect_same_bits(head(to, 20, 9), want);
}

}  // namespace
}  // namespace moeflux
