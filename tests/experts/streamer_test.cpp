#include "experts/streamer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "experts/fake_backend.h"
#include "families/family.h"
#include "support/expect_error.h"
#include "support/fake_reader.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::expect_error;

// With a cache that the host reaches, and with one that it fills through a tier of pinned memory.
class Streamer : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy(test::fixture_path("qwen-onekv") + "/" + name, dir_.file(name));
    }
    file_ = dir_.file("model.safetensors");
    source_ = open_source(dir_.path());
    banks_ = describe_model(*source_).index.experts;
  }

  ExpertStore store() const { return {source_, banks_}; }  // 4 banks of 5
  std::unique_ptr<ExpertStreamer> streamer(std::uint64_t n_slots) {
    return streamer_of(n_slots * store().slot_bytes(), budget_);
  }
  std::unique_ptr<ExpertStreamer> streamer_of(std::uint64_t bytes, MemoryBudget& budget,
                                              std::unique_ptr<AsyncReader> reader = nullptr,
                                              int reads_at_once = 8) {
    auto made =
        std::make_unique<ExpertStreamer>(store(), backend_, budget,
                                         ExpertStreamer::Options{.cache_bytes = bytes,
                                                                 .policy = "lru",
                                                                 .reader = std::move(reader),
                                                                 .reads_at_once = reads_at_once});
    EXPECT_EQ(made->host_tier() != nullptr, has_tier());
    return made;
  }
  static bool has_tier() { return GetParam(); }
  std::vector<std::string> paths() const { return source_->disk_paths(); }

  // Takes all leases of a request, checks the bytes of each, and returns the order they came in.
  std::vector<int> take(ExpertStreamer& streamer, int bank,
                        const std::vector<std::int32_t>& experts) {
    std::vector<int> order;
    auto request = streamer.request(bank, experts);
    while (const auto lease = request.next()) {
      order.push_back(lease->index());
      expect_bytes(lease->view(), {bank, experts[static_cast<std::size_t>(lease->index())]});
    }
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), experts.size());
    return order;
  }

  void expect_bytes(const ExpertView& view, ExpertKey key) {
    const ExpertBank& bank = banks_[static_cast<std::size_t>(key.bank)];
    const auto same = [&](const Weight& weight, const StoredMatrix& want) {
      const WeightView got = test::on_host(weight);
      std::vector<std::byte> bytes(want.data.bytes);
      source_->read(want.data, bytes);
      return got.rows == want.rows && std::memcmp(got.data, bytes.data(), bytes.size()) == 0;
    };
    EXPECT_TRUE(same(view.gate, bank.gate.at(key.expert)) &&
                same(view.up, bank.up.at(key.expert)) && same(view.down, bank.down.at(key.expert)))
        << key.bank << ", " << key.expert;
  }

  test::TempDir dir_;
  std::string file_;
  std::shared_ptr<const ModelSource> source_;
  std::vector<ExpertBank> banks_;
  MemoryBudget budget_{std::uint64_t{1} << 30};
  test::FakeBackend backend_{{.reachable = !has_tier()}};
};

TEST_P(Streamer, WhoLooksOnSeesHitsAndMissesOfEveryExpert) {
  auto streamer = this->streamer(3);
  int n_calls = 0;
  streamer->set_on_progress([&] { ++n_calls; });
  take(*streamer, 0, {0, 1});  // nobody counts yet
  EXPECT_GT(n_calls, 0);
  ExpertUses uses(20);
  streamer->count_uses(&uses);
  take(*streamer, 0, {0, 1, 2});
  take(*streamer, 1, {4});
  take(*streamer, 1, {4});
  streamer->count_uses(nullptr);
  take(*streamer, 1, {4});
  std::vector<std::uint32_t> hits(20), misses(20);
  hits[0] = hits[1] = hits[9] = 1;
  misses[2] = misses[9] = 1;
  EXPECT_EQ(uses.hits, hits);
  EXPECT_EQ(uses.misses, misses);
}

INSTANTIATE_TEST_SUITE_P(Memory, Streamer, testing::Bool(), [](const auto& test_info) {
  return test_info.param ? "ThroughATier" : "InReach";
});

TEST_P(Streamer, HitsComeBeforeMisses) {
  const auto s = streamer(3);
  take(*s, 0, {1, 3});
  EXPECT_EQ(s->stats().total().misses, 2u);
  const std::vector<int> order = take(*s, 0, {0, 1, 2, 3});
  EXPECT_EQ(std::set<int>(order.begin(), order.begin() + 2), (std::set<int>{1, 3}));
  EXPECT_EQ(s->stats().total().hits, 2u);
  EXPECT_EQ(s->stats().total().misses, 4u);
}

TEST_P(Streamer, CountsTheBytesItRead) {
  const auto s = streamer(3);
  take(*s, 0, {1, 3});
  EXPECT_EQ(s->stats().bytes_read, 2u * 3 * 24 * 48 * 4);  // three matrices of 24 x 48 floats each
  EXPECT_EQ(s->stats().read_time.count(), 2u);
}

TEST_P(Streamer, KnowsHowLongTheDriveWasBusy) {
  const auto s = streamer(3);
  take(*s, 0, {1, 3});
  const std::uint64_t once = s->stats().busy_ns;
  // Two reads at once, or one after the other: less than the sum of both, and something.
  EXPECT_GT(once, 0u);
  EXPECT_LE(once, s->stats().read_time.sum_ns);
  take(*s, 0, {1, 3});  // both are there
  EXPECT_EQ(s->stats().busy_ns, once);
}

// What came from the files: the expert's planes, and gaps too small to be worth a second read.
TEST(StreamerOfMixedFormats, CountsTheBytesItRead) {
  const auto source = open_source(test::fixture_path("mlx-qwen-mixed"));
  MemoryBudget budget(1 << 30);
  test::FakeBackend backend;
  ExpertStreamer streamer({source, describe_model(*source).index.experts}, backend, budget,
                          {.cache_bytes = 1 << 20, .policy = "lru", .reader = nullptr});
  std::uint64_t want = 0;
  for (const char* part : {"gate_proj.weight", "gate_proj.scales", "gate_proj.biases",
                           "up_proj.weight", "up_proj.scales", "up_proj.biases", "down_proj.weight",
                           "down_proj.scales", "down_proj.biases"}) {
    want +=
        source->find(std::string("language_model.model.layers.0.mlp.switch_mlp.") + part)->bytes /
        5;
  }
  const std::vector<std::int32_t> experts{3};
  auto request = streamer.request(0, experts);
  while (request.next()) {
  }
  EXPECT_GE(streamer.stats().bytes_read, want);
  EXPECT_LE(streamer.stats().bytes_read, want + 8 * ExpertStore::kBlock);
}

TEST_P(Streamer, OneSlotIsEnough) {
  const auto s = streamer(1);
  for (int round = 0; round < 3; ++round) {
    for (int bank = 0; bank < 4; ++bank) take(*s, bank, {4, 0, 2});
  }
  EXPECT_EQ(s->cache_bytes(), store().slot_bytes());
  EXPECT_EQ(s->stats().total().hits + s->stats().total().misses, 36u);
}

TEST_P(Streamer, NeverTakesMoreThanItMay) {
  const std::size_t slot = store().slot_bytes();
  EXPECT_EQ(streamer_of(0, budget_)->cache_bytes(), slot);  // at least one
  EXPECT_EQ(streamer_of(3 * slot - 1, budget_)->cache_bytes(), 2 * slot);
  EXPECT_EQ(streamer_of(UINT64_MAX, budget_)->cache_bytes(), 20 * slot);  // all there are
  MemoryBudget small(slot - 1);
  expect_error(Errc::OutOfMemory, {"expert cache"}, [&] { streamer_of(slot, small); });
  MemoryBudget no_room_for_the_reader(slot);
  expect_error(Errc::OutOfMemory, {has_tier() ? "host tier" : "reader"},
               [&] { streamer_of(slot, no_room_for_the_reader); });
}

TEST_P(Streamer, EverythingResidentIsReadOnce) {
  const auto s = streamer(20);
  for (int round = 0; round < 3; ++round) {
    for (int bank = 0; bank < 4; ++bank) take(*s, bank, {0, 1, 2, 3, 4});
  }
  EXPECT_EQ(s->stats().total().misses, 20u);
  EXPECT_EQ(s->stats().total().hits, 40u);
}

TEST_P(Streamer, ALeaseKeepsItsBytes) {
  const auto s = streamer(2);
  const std::vector<std::int32_t> wanted{2};
  auto request = s->request(1, wanted);
  const auto lease = request.next();
  ASSERT_TRUE(lease.has_value());
  const std::uint64_t place = lease->view().gate.data;
  for (int bank = 0; bank < 4; ++bank) take(*s, bank, {0, 1, 3, 4});
  EXPECT_EQ(lease->view().gate.data, place);
  expect_bytes(lease->view(), {1, 2});
  EXPECT_FALSE(request.next().has_value());
}

TEST_P(Streamer, AMovedLeaseStillPins) {
  const auto s = streamer(1);
  const std::vector<std::int32_t> wanted{2};
  auto request = s->request(1, wanted);
  {
    auto first = request.next();
    const ExpertLease second = std::move(*first);
    first.reset();
    EXPECT_THROW(take(*s, 0, {0}), std::logic_error);  // the only slot is leased
    expect_bytes(second.view(), {1, 2});
  }
  take(*s, 0, {0});
}

TEST_P(Streamer, AFailedReadIsAnErrorAndTheCacheGoesOn) {
  const std::string content = read_text_file(file_);
  const auto s = streamer(4);
  take(*s, 0, {0, 1});
  std::filesystem::resize_file(file_, 4096);
  expect_error(Errc::Io, {file_}, [&] { take(*s, 3, {4}); });
  expect_error(Errc::Io, {file_}, [&] { take(*s, 3, {4, 3}); });
  std::fstream(file_, std::ios::binary | std::ios::in | std::ios::out)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  const std::uint64_t misses = s->stats().total().misses;
  take(*s, 0, {0, 1});  // still there
  EXPECT_EQ(s->stats().total().misses, misses);
  take(*s, 3, {4, 3});
  take(*s, 3, {0, 1, 2, 3, 4});
}

TEST_P(Streamer, AnEmptyRequestGivesNothing) {
  const auto s = streamer(2);
  auto request = s->request(0, {});
  EXPECT_FALSE(request.next().has_value());
  EXPECT_FALSE(request.next().has_value());
}

// Late, split and shuffled completions, with and without slots to spare, prefetches and warming in
// between, and a cache that changes its size.
TEST_P(Streamer, RandomRequestsAlwaysGiveTheRightBytes) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    test::Random random(seed);
    const std::size_t n_slots = std::vector<std::size_t>{1, 2, 7, 20}[seed % 4];
    auto reader =
        std::make_unique<test::FakeReader>(paths(), test::FakeReaderOptions{.seed = seed});
    const auto s = streamer_of(n_slots * store().slot_bytes(), budget_, std::move(reader));
    if (seed % 3 == 0) s->warm({{3, 3}, {0, 1}, {2, 2}, {1, 4}});
    const auto some = [&] {
      std::vector<std::int32_t> experts;
      for (std::int32_t e = 0; e < 5; ++e) {
        if (random.chance(0.5)) experts.push_back(e);
      }
      return experts;
    };
    for (int step = 0; step < 120; ++step) {
      const int bank = static_cast<int>(random.integer(0, 3));
      if (seed % 2 == 0) s->prefetch((bank + 1) % 4, some());
      take(*s, bank, some());
      if (random.chance(0.1)) {
        const auto size = static_cast<std::size_t>(random.integer(1, 20));
        s->set_capacity(size * store().slot_bytes());
      }
    }
    const BankStats total = s->stats().total();
    EXPECT_GT(total.misses, 0u);
    EXPECT_EQ(s->stats().prefetched > 0, seed % 2 == 0);
  }
}

TEST_P(Streamer, ReadsNoMoreAtOnceThanItShould) {
  for (const int at_once : {1, 2, 5}) {
    auto owned = std::make_unique<test::FakeReader>(paths());
    const test::FakeReader& reader = *owned;
    const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned), at_once);
    s->prefetch(0, std::vector<std::int32_t>{0, 1, 2, 3, 4});
    const std::size_t per_expert = store().reads({0, 0}).size();
    EXPECT_EQ(reader.in_flight(), per_expert * static_cast<std::size_t>(at_once));
    take(*s, 1, {0, 1, 2, 3, 4});
  }
}

TEST_P(Streamer, WhatIsAwaitedGoesBeforeGuesses) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  const test::FakeReader& reader = *owned;
  const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned), 1);
  s->prefetch(2, std::vector<std::int32_t>{0, 1});  // the first is on its way, the second waits
  const std::vector<std::int32_t> wanted{3, 4};
  auto request = s->request(1, wanted);
  s->prefetch(2, std::vector<std::int32_t>{1});
  while (request.next()) continue;
  const auto place = [&](ExpertKey key) {  // in what the drive was asked for
    const auto& log = reader.log();
    return std::find_if(
               log.begin(), log.end(),
               [&](const ReadOp& op) { return op.offset == store().reads(key)[0].offset; }) -
           log.begin();
  };
  EXPECT_LT(place({2, 0}), place({1, 3}));
  EXPECT_LT(place({1, 3}), place({1, 4}));
  EXPECT_LT(place({1, 4}), place({2, 1}));
  EXPECT_EQ(s->stats().banks[1].misses, 2u);
}

TEST_P(Streamer, AGuessThatNobodyConfirmsIsNotRead) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned), 1);
  s->prefetch(2, std::vector<std::int32_t>{0, 1, 2});
  take(*s, 2, {0, 4});
  EXPECT_EQ(s->stats().prefetched, 1u);
  EXPECT_EQ(s->stats().prefetches_used, 1u);
}

TEST_P(Streamer, GoesOnReadingWhileTheCallerComputes) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  const test::FakeReader& reader = *owned;
  const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned), 1);
  s->prefetch(2, std::vector<std::int32_t>{0, 1, 2});
  for (int i = 0; i < 1000 && reader.in_flight() > 0; ++i) s->keep_reading();
  EXPECT_EQ(s->stats().prefetched, 3u);
  EXPECT_EQ(reader.in_flight(), 0u);
  take(*s, 2, {0, 1, 2});
  EXPECT_EQ(s->stats().banks[2].hits, 3u);
}

TEST_P(Streamer, AnAbandonedRequestLeavesTheCacheUsable) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  const auto s = streamer_of(3 * store().slot_bytes(), budget_, std::move(owned));
  const std::vector<std::int32_t> wanted{0, 1, 2, 3, 4};
  { const auto request = s->request(1, wanted); }
  for (int bank = 0; bank < 4; ++bank) take(*s, bank, wanted);
}

TEST_P(Streamer, AGuessThatIsUsedIsAHit) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned));
  s->prefetch(2, std::vector<std::int32_t>{1, 3});
  take(*s, 1, {0});
  take(*s, 2, {1, 2});
  EXPECT_EQ(s->stats().prefetched, 2u);
  EXPECT_EQ(s->stats().prefetches_used, 1u);
  EXPECT_EQ(s->stats().banks[2].hits, 1u);
  EXPECT_EQ(s->stats().banks[2].misses, 1u);
  take(*s, 2, {1});  // counted once
  EXPECT_EQ(s->stats().prefetches_used, 1u);
}

TEST_P(Streamer, AGuessThatFailsHarmsNobody) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  owned->fail_op(0, EIO);
  const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned));
  s->prefetch(2, std::vector<std::int32_t>{1});
  take(*s, 1, {0, 1, 2, 3, 4});  // the prefetch fails meanwhile
  take(*s, 2, {1});
  EXPECT_EQ(s->stats().banks[2].misses, 1u);
}

TEST_P(Streamer, AReadSomebodyElseStartedMayFailAndIsTriedAgain) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  test::FakeReader& reader = *owned;
  const auto s = streamer_of(10 * store().slot_bytes(), budget_, std::move(owned));
  int n_failing = 1;
  reader.fail_when([&](const ReadOp&) { return n_failing-- > 0 ? EIO : 0; });
  s->prefetch(2, std::vector<std::int32_t>{1});
  take(*s, 2, {1, 3});  // joins the prefetch, which fails
  // An abandoned request's reads fail after it.
  n_failing = 100;
  const std::vector<std::int32_t> wanted{0, 1, 2};
  { const auto request = s->request(3, wanted); }
  n_failing = 0;
  take(*s, 3, wanted);
  // What fails when it is tried again is an error.
  n_failing = 100;
  s->prefetch(1, std::vector<std::int32_t>{4});
  expect_error(Errc::Io, {"Input/output error"}, [&] { take(*s, 1, {4}); });
}

TEST_P(Streamer, WarmingFillsEmptySlotsOnly) {
  const auto s = streamer(3);
  take(*s, 0, {0});
  s->warm({{1, 0}, {0, 0}, {1, 1}, {1, 2}, {1, 3}});
  s->finish_warming();
  EXPECT_EQ(s->stats().warmed, 2u);
  take(*s, 0, {0});
  take(*s, 1, {0, 1});
  EXPECT_EQ(s->stats().total().misses, 1u);
}

TEST_P(Streamer, WarmingThatFailsIsReportedToWhoAsks) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  test::FakeReader& reader = *owned;
  reader.fail_when([](const ReadOp&) { return EIO; });
  const auto s = streamer_of(20 * store().slot_bytes(), budget_, std::move(owned));
  s->warm({{0, 0}, {1, 1}});
  s->finish_warming();
  EXPECT_EQ(s->cache().n_held(), 0u);
  expect_error(Errc::Io, {file_, "Input/output error"}, [&] { take(*s, 1, {1}); });
  reader.fail_when({});
  take(*s, 1, {1});
}

TEST_P(Streamer, WhenAllIsWarmNothingIsRead) {
  const auto s = streamer(20);
  std::vector<ExpertKey> all;
  for (int bank = 0; bank < 4; ++bank) {
    for (int e = 0; e < 5; ++e) all.push_back({bank, e});
  }
  EXPECT_TRUE(s->holds_all());
  s->warm(all);
  std::size_t held = 0;
  s->finish_warming([&] {
    EXPECT_GE(s->cache().n_held(), held);
    held = s->cache().n_held();
  });
  EXPECT_EQ(held, 20u);
  const std::uint64_t bytes = s->stats().bytes_read;
  for (int bank = 0; bank < 4; ++bank) take(*s, bank, {0, 1, 2, 3, 4});
  EXPECT_EQ(s->stats().bytes_read, bytes);
  EXPECT_EQ(s->stats().total().misses, 0u);
}

TEST_P(Streamer, AnErrorNamesFileOffsetAndCause) {
  auto owned = std::make_unique<test::FakeReader>(paths());
  test::FakeReader& reader = *owned;
  const auto s = streamer_of(4 * store().slot_bytes(), budget_, std::move(owned));
  const ExpertRead read = store().reads({2, 3})[0];
  reader.fail_when([&](const ReadOp& op) { return op.offset == read.offset ? EIO : 0; });
  expect_error(Errc::Io,
               {file_, "expert 3", fmt::format("offset {}", read.offset), "Input/output error"},
               [&] {
                 take(*s, 2, {1, 3});
               });
  take(*s, 2, {1, 2});  // others go on
  reader.fail_when({});
  take(*s, 2, {3});  // and so does this one, once it can be read
}

TEST_P(Streamer, ObserversSeeStepsAndRequests) {
  struct Log : RequestObserver {
    void on_step(int n_tokens) override { text += fmt::format("step {};", n_tokens); }
    void on_request(int bank, std::span<const std::int32_t> experts) override {
      text += fmt::format("bank {}: {};", bank, fmt::join(experts, " "));
    }
    std::string text;
  } log;
  const auto s = streamer(3);
  s->add_observer(&log);
  s->begin_step(2);
  take(*s, 1, {4, 2});
  EXPECT_EQ(log.text, "step 2;bank 1: 4 2;");
  EXPECT_EQ(s->stats().tokens, 2u);
}

// Operations of a device may still read an expert when its lease ends.
TEST_P(Streamer, ALeaseLeavesTheMarkOfItsLastUse) {
  const auto s = streamer(1);
  backend_.set_poll([&] { s->poll(); });
  const std::vector<std::int32_t> wanted{2};
  {
    auto request = s->request(1, wanted);
    const auto lease = request.next();
    backend_.enqueue();
  }
  const int before = backend_.n_waits;
  take(*s, 0, {0});
  EXPECT_EQ(backend_.n_waits, before + 1);
  backend_.set_poll({});
}

TEST_P(Streamer, ShrinksAndGrowsByBytes) {
  const auto s = streamer(6);
  const std::uint64_t slot = store().slot_bytes();
  s->set_capacity(3 * slot + slot / 2);
  EXPECT_EQ(s->cache().capacity(), 3u);
  s->set_capacity(0);
  EXPECT_EQ(s->cache().capacity(), 1u);
  s->set_capacity(100 * slot);
  EXPECT_EQ(s->cache().capacity(), 6u);
  EXPECT_EQ(s->cache_bytes(), 6 * slot);
}

// What the tier has is copied, not read again.
TEST(StreamerWithATier, FindsInTheTierWhatTheCacheEvicted) {
  const auto source = open_source(test::fixture_path("qwen-onekv"));
  MemoryBudget budget(1 << 30);
  test::FakeBackend backend({.reachable = false});
  ExpertStore store(source, describe_model(*source).index.experts);
  const std::uint64_t all = store.all_bytes(), slot = store.slot_bytes();
  ExpertStreamer s(std::move(store), backend, budget,
                   {.cache_bytes = 2 * slot, .host_bytes = all, .policy = "lru"});
  ASSERT_NE(s.host_tier(), nullptr);
  EXPECT_EQ(s.host_tier()->buffer().kind(), MemoryKind::Pinned);
  EXPECT_EQ(s.host_tier()->bytes(), all);
  const std::vector<std::int32_t> wanted{0, 1, 2, 3, 4};
  std::uint64_t bytes = 0;
  for (int round = 0; round < 3; ++round) {
    for (int bank = 0; bank < 4; ++bank) {
      auto request = s.request(bank, wanted);
      int n = 0;
      while (request.next()) ++n;
      EXPECT_EQ(n, 5);
    }
    if (round == 0) bytes = s.stats().bytes_read;
  }
  EXPECT_EQ(s.stats().bytes_read, bytes);
  EXPECT_GT(s.stats().total().misses, 40u);
}

// Experts of several sizes, with little memory and with much.
TEST(StreamerOfMixedFormats, SlotsOfSeveralSizesHoldTheRightBytes) {
  const auto source = open_source(test::fixture_path("mlx-qwen-mixed"));
  const auto banks = describe_model(*source).index.experts;
  for (const bool reachable : {true, false}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      test::Random random(seed);
      MemoryBudget budget(1 << 30);
      test::FakeBackend backend({.reachable = reachable, .seed = seed});
      ExpertStore store(source, banks);
      const std::uint64_t bytes = store.all_bytes() * seed / 6;
      ExpertStreamer s(std::move(store), backend, budget,
                       {.cache_bytes = bytes,
                        .min_slots = 2,
                        .policy = "learned",
                        .reader = std::make_unique<test::FakeReader>(
                            source->disk_paths(), test::FakeReaderOptions{.seed = seed})});
      EXPECT_LE(s.cache_bytes(), std::max(bytes, s.store().floor_bytes(2)));
      for (int step = 0; step < 60; ++step) {
        const int bank = static_cast<int>(random.integer(0, s.store().n_banks() - 1));
        std::vector<std::int32_t> wanted;
        for (std::int32_t e = 0; e < s.store().n_experts(bank); ++e) {
          if (random.chance(0.6)) wanted.push_back(e);
        }
        auto request = s.request(bank, wanted);
        while (const auto lease = request.next()) {
          const StoredMatrix want = banks[static_cast<std::size_t>(bank)].down.at(
              wanted[static_cast<std::size_t>(lease->index())]);
          std::vector<std::byte> plane(want.data.bytes);
          source->read(want.data, plane);
          const WeightView got = test::on_host(lease->view().down);
          ASSERT_EQ(std::memcmp(got.data, plane.data(), plane.size()), 0);
        }
      }
      EXPECT_EQ(s.holds_all(), seed == 6);
    }
  }
}

// A flipped bit must never become a weight.
TEST(StreamerOfAContainer, ADamagedExpertIsNamedAndOthersGoOn) {
  const auto source = open_source(test::fixture_path("container-v1"));
  auto owned = std::make_unique<test::FakeReader>(
      source->disk_paths(), test::FakeReaderOptions{.seed = 1, .shuffle = true, .max_delay = 5});
  owned->flip_bit(0, 12345);
  MemoryBudget budget(1 << 30);
  test::FakeBackend backend;
  ExpertStreamer s({source, describe_model(*source).index.experts}, backend, budget,
                   {.cache_bytes = 1 << 20, .policy = "lru", .reader = std::move(owned)});
  const std::vector<std::int32_t> wanted{1, 0};
  const auto take_all = [&] {
    auto request = s.request(0, wanted);
    int n = 0;
    while (request.next()) ++n;
    return n;
  };
  expect_error(Errc::Io, {"expert 1", "checksum"}, take_all);
  EXPECT_EQ(take_all(), 2);  // read again, intact this time
}

}  // namespace
}  // namespace moeflux
