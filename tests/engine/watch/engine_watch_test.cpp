// What an engine lets others see of it.
#include "engine/watch/engine_watch.h"

#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

using namespace std::chrono_literals;

class Watch : public testing::Test {
 protected:
  // So little memory that a part of the experts stays on the drive.
  void SetUp() override {
    EngineOptions options;
    options.n_threads = 1;
    options.context_length = 128;
    options.max_batch = 64;
    options.elastic = false;
    options.memory_bytes = std::uint64_t{1} << 30;
    const auto all = Engine(demo(), options).plan();
    options.memory_bytes = all.floor_bytes() + (all.all_cache_bytes - all.floor_cache_bytes) / 3;
    engine_.emplace(demo(), options);
    engine_->watch().set_on_frame([this] { ++n_frames_; });
  }
  static std::string demo() { return test::source_path("models/demo"); }

  void work(std::int64_t n_tokens) {
    Session session = engine_->new_session();
    engine_->prefill(session, test::Random(seed_++).tokens(n_tokens, 2000));
  }
  EngineFrame take() {
    EngineFrame frame;
    EXPECT_TRUE(engine_->watch().take(frame));
    return frame;
  }
  bool is_empty() {
    EngineFrame frame;
    return !engine_->watch().take(frame);
  }

  std::optional<Engine> engine_;
  int n_frames_ = 0;
  std::uint64_t seed_ = 1;
};

TEST_F(Watch, SaysNothingWhileNobodyLooksOn) {
  work(20);
  engine_->watch().publish();
  EXPECT_EQ(n_frames_, 0);
  EXPECT_TRUE(is_empty());
}

TEST_F(Watch, KnowsTheBanks) {
  const std::vector<WatchedBank>& banks = engine_->watch().banks();
  ASSERT_EQ(banks.size(), 9u);
  EXPECT_EQ(banks[0].layer, "0");
  EXPECT_EQ(banks[7].layer, "7");
  EXPECT_EQ(banks[8].layer, "mtp");
  EXPECT_EQ(banks[3].n_experts, 64);
  EXPECT_EQ(banks[3].top_k, 8);
  EXPECT_EQ(banks[3].expert_bytes, 27648u);
}

TEST_F(Watch, AFrameIsTheStateOfTheEngine) {
  EngineWatch& watch = engine_->watch();
  watch.set_wanted(true);
  watch.publish();
  const EngineFrame first = take();
  EXPECT_EQ(first.locations.size(), 9u * 64);
  EXPECT_EQ(first.hits + first.misses, 0u);
  work(20);
  watch.publish();  // one may have been published meanwhile: it is taken first
  std::vector<std::uint32_t> hits(9 * 64), misses(9 * 64);
  EngineFrame frame;
  do {
    ASSERT_TRUE(watch.take(frame));
    for (std::size_t i = 0; i < hits.size(); ++i) {
      hits[i] += frame.uses.hits[i];
      misses[i] += frame.uses.misses[i];
    }
    if (watch.has_missed_one()) watch.publish();
  } while (frame.rows < 20 || frame.passes == first.passes);

  const StreamerStats& stats = engine_->experts().stats();
  EXPECT_EQ(frame.hits, stats.total().hits);
  EXPECT_EQ(frame.misses, stats.total().misses);
  EXPECT_EQ(frame.rows, stats.tokens);
  EXPECT_EQ(frame.bytes_read, stats.bytes_read);
  EXPECT_GT(frame.bytes_used, (frame.hits + frame.misses) * 27648);
  EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), std::uint64_t{0}), frame.hits);
  EXPECT_EQ(std::accumulate(misses.begin(), misses.end(), std::uint64_t{0}), frame.misses);
  EXPECT_GT(frame.misses, 100u);

  const ExpertCache& cache = engine_->experts().cache();
  const ExpertIds& ids = engine_->experts().store().ids();
  std::size_t n_in_memory = 0;
  for (int id = 0; id < ids.n_total(); ++id) {
    const int slot = cache.find(ids.key(id));
    const bool is_ready = slot >= 0 && cache.state(slot) == ExpertCache::State::Ready;
    const ExpertLocation location = frame.locations[static_cast<std::size_t>(id)];
    EXPECT_EQ(location == ExpertLocation::Memory, is_ready) << id;
    n_in_memory += is_ready;
  }
  EXPECT_GT(n_in_memory, 50u);
  EXPECT_LT(n_in_memory, 400u);
  EXPECT_EQ(frame.cache.bytes, cache.bytes());
  EXPECT_EQ(frame.cache.held_bytes, cache.held_bytes());
}

TEST_F(Watch, ComesAtMostTenTimesASecond) {
  EngineWatch& watch = engine_->watch();
  watch.set_wanted(true);
  work(4);
  n_frames_ = 0;
  (void)is_empty();
  const auto start = std::chrono::steady_clock::now();
  EngineFrame frame;
  double last = -1;
  while (std::chrono::steady_clock::now() - start < 450ms) {
    work(2);
    if (!watch.take(frame)) continue;
    if (last >= 0) {
      EXPECT_GE(frame.seconds - last, 0.099);
    }
    last = frame.seconds;
  }
  EXPECT_LE(n_frames_, 6);
  EXPECT_GE(n_frames_, 1);
}

TEST_F(Watch, AFullMailboxIsLeftAlone) {
  EngineWatch& watch = engine_->watch();
  watch.set_wanted(true);
  watch.publish();
  EXPECT_EQ(n_frames_, 1);
  EXPECT_FALSE(watch.has_missed_one());
  work(10);
  watch.publish();
  EXPECT_EQ(n_frames_, 1);
  const EngineFrame old = take();
  EXPECT_EQ(old.misses, 0u);
  EXPECT_TRUE(watch.has_missed_one());
  EXPECT_FALSE(watch.has_missed_one());
  watch.publish();
  EXPECT_GT(take().misses, 0u);
}

TEST_F(Watch, CountsAnewForWhoLooksOnNext) {
  EngineWatch& watch = engine_->watch();
  watch.set_wanted(true);
  watch.publish();
  (void)take();
  watch.set_wanted(false);
  work(10);
  (void)is_empty();
  watch.set_wanted(true);
  watch.publish();
  const EngineFrame frame = take();
  EXPECT_GT(frame.hits + frame.misses, 0u);  // the counters go on
  EXPECT_EQ(std::accumulate(frame.uses.hits.begin(), frame.uses.hits.end(), 0u), 0u);
}

TEST_F(Watch, FramesMayBeTakenWhileTheEngineWorks) {
  EngineWatch& watch = engine_->watch();
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> n_taken{0};
  std::thread other([&] {
    EngineFrame frame;
    std::uint64_t last = 0;
    while (!done) {
      watch.set_wanted(true);
      if (!watch.take(frame)) continue;
      ++n_taken;
      EXPECT_GE(frame.rows, last);
      last = frame.rows;
    }
  });
  const auto start = std::chrono::steady_clock::now();
  while (n_taken < 3 && std::chrono::steady_clock::now() - start < 20s) work(8);
  done = true;
  other.join();
  EXPECT_GE(n_taken, 3u);
}

TEST_F(Watch, TheSpeedsOfTheMachineAreMeasuredOnce) {
  EngineWatch& watch = engine_->watch();
  watch.set_wanted(true);
  watch.measure_limits();
  watch.publish();
  const MachineLimits limits = take().limits;
  // There is hardly any memory left to measure with here: what could not be is 0.
  EXPECT_GE(limits.drive, 0);
  watch.measure_limits();
  watch.publish();
  EXPECT_EQ(take().limits, limits);
  EXPECT_LE(engine_->memory().available(), engine_->memory().ceiling());
}

TEST(WatchLimits, AreKnownWhereThereIsRoomToMeasure) {
  EngineOptions options;
  options.n_threads = 1;
  options.context_length = 128;
  options.max_batch = 16;
  options.memory_bytes = std::uint64_t{4} << 30;
  Engine engine(test::source_path("models/demo"), options);
  engine.watch().set_wanted(true);
  engine.watch().measure_limits();
  engine.watch().publish();
  EngineFrame frame;
  ASSERT_TRUE(engine.watch().take(frame));
  EXPECT_GT(frame.limits.drive, 1e5);
  EXPECT_GT(frame.limits.memory, 1e8);
}

}  // namespace
}  // namespace moeflux
