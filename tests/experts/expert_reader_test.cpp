#include "experts/expert_reader.h"

#include <cerrno>
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "experts/fake_backend.h"
#include "families/family.h"
#include "support/expect_error.h"
#include "support/fake_reader.h"
#include "support/paths.h"

namespace moeflux {
namespace {

// A reader of either kind, and a buffer of slots that it fills.
class Reading {
 public:
  Reading(bool has_tier, std::size_t tier_slots, int at_once, std::uint64_t seed = 1)
      : backend_({.reachable = !has_tier, .seed = seed}),
        n_(store_.n_experts_total()),
        memory_(backend_.allocate(n_ * store_.slot_bytes(), MemoryKind::Device, Backing::Huge)) {
    auto files = std::make_unique<test::FakeReader>(source_->disk_paths(),
                                                    test::FakeReaderOptions{.seed = seed});
    files_ = files.get();
    auto drive = std::make_unique<DriveReader>(store_, std::move(files), at_once,
                                               has_tier ? tier_slots : n_, stats_);
    if (!has_tier) {
      reader_ = std::move(drive);
      return;
    }
    reader_ = std::make_unique<TierReader>(
        store_, backend_,
        ExpertCache::Options{
            .kind = MemoryKind::Pinned, .slots = {tier_slots}, .policy = "learned"},
        std::move(drive), n_, stats_);
  }

  ExpertReader& operator*() { return *reader_; }
  test::FakeReader& files() { return *files_; }
  const ExpertStore& store() const { return store_; }
  const StreamerStats& stats() const { return stats_; }

  // Every expert goes to the slot of its number.
  void submit(int id) {
    reader_->submit(
        store_.ids().key(id),
        {memory_.get(), static_cast<std::uint64_t>(id) * store_.slot_bytes(), store_.slot_bytes()},
        id);
  }
  bool is_right(int id) const {
    const ExpertKey key = store_.ids().key(id);
    const StoredMatrix want = banks_[static_cast<std::size_t>(key.bank)].up.at(key.expert);
    std::vector<std::byte> bytes(want.data.bytes);
    source_->read(want.data, bytes);
    const WeightView got = test::on_host(
        store_.view(key, *memory_, static_cast<std::uint64_t>(id) * store_.slot_bytes()).up);
    return std::memcmp(got.data, bytes.data(), bytes.size()) == 0;
  }

 private:
  std::shared_ptr<const ModelSource> source_ = open_source(test::fixture_path("qwen-onekv"));
  std::vector<ExpertBank> banks_ = describe_model(*source_).index.experts;
  ExpertStore store_{source_, banks_};
  test::FakeBackend backend_;
  std::size_t n_;
  std::unique_ptr<Buffer> memory_;
  StreamerStats stats_;
  test::FakeReader* files_ = nullptr;
  std::unique_ptr<ExpertReader> reader_;
};

class ExpertReaders : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Kinds, ExpertReaders, testing::Bool(),
                         [](const auto& test_info) { return test_info.param ? "Tier" : "Drive"; });

// More experts than the tier has slots, some of which cannot be read.
TEST_P(ExpertReaders, EveryExpertIsReportedOnceWholeOrFailed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Reading reading(GetParam(), 1 + seed % 5, 3, seed);
    test::Random random(seed);
    reading.files().fail_when([&](const ReadOp&) { return random.chance(0.1) ? EIO : 0; });
    const auto n = static_cast<int>(reading.store().n_experts_total());
    for (int round = 0; round < 3; ++round) {
      std::map<int, int> reports;
      int n_submitted = 0;
      std::vector<int> tags(4);
      while (n_submitted < n || (*reading).n_moving() > 0) {
        if (n_submitted < n && random.chance(0.5)) reading.submit(n_submitted++);
        const std::size_t landed = (*reading).wait(tags, random.chance(0.3));
        for (std::size_t i = 0; i < landed; ++i) {
          ++reports[tags[i]];
          try {
            (*reading).finish(tags[i]);
            EXPECT_TRUE(reading.is_right(tags[i]));
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::Io);
          }
        }
      }
      ASSERT_EQ(reports.size(), static_cast<std::size_t>(n));
      for (const auto& [tag, times] : reports) EXPECT_EQ(times, 1) << tag;
    }
  }
}

TEST_P(ExpertReaders, ABlockingWaitReportsSomething) {
  Reading reading(GetParam(), 2, 2);
  for (int id = 0; id < 5; ++id) reading.submit(id);
  std::vector<int> tags(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ((*reading).wait(tags, /*block=*/true), 1u);
  EXPECT_EQ((*reading).wait(tags, /*block=*/true), 0u);
}

TEST_P(ExpertReaders, KnowsWhenMoreWouldOnlyWait) {
  Reading reading(GetParam(), 10, 2);
  const auto free_for = [&](int id) {
    return (*reading).is_free_for(reading.store().ids().key(id));
  };
  EXPECT_TRUE(free_for(0));
  reading.submit(0);
  EXPECT_TRUE(free_for(1));
  reading.submit(1);
  EXPECT_FALSE(free_for(2));
}

TEST_P(ExpertReaders, MayEndWhileExpertsMove) {
  Reading reading(GetParam(), 2, 2);
  for (int id = 0; id < 8; ++id) reading.submit(id);
}

TEST(TierReader, CopiesWhatItHoldsAndReadsTheRest) {
  Reading reading(/*has_tier=*/true, 4, 1);
  std::vector<int> tags(8);
  const auto fetch = [&](int id) {
    reading.submit(id);
    while ((*reading).wait(tags, /*block=*/true) == 0) continue;
    (*reading).finish(tags[0]);
    EXPECT_TRUE(reading.is_right(tags[0]));
  };
  for (int id = 0; id < 4; ++id) fetch(id);
  const std::uint64_t bytes = reading.stats().bytes_read;
  reading.submit(7);  // the drive is busy, but what is held needs no drive
  EXPECT_FALSE((*reading).is_free_for(reading.store().ids().key(9)));
  int n_free = 0;
  for (int id = 0; id < 4; ++id) n_free += (*reading).is_free_for(reading.store().ids().key(id));
  EXPECT_EQ(n_free, 3);  // one was evicted
  while ((*reading).n_moving() > 0) (*reading).wait(tags, /*block=*/true);
  EXPECT_EQ(reading.stats().bytes_read, bytes + reading.store().read_bytes({1, 2}));
}

}  // namespace
}  // namespace moeflux
