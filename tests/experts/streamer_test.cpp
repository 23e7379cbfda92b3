#include "experts/streamer.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "families/family.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::expect_error;

class Streamer : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy(test::fixture_path("qwen-onekv") + "/" + name, dir_.file(name));
    }
    file_ = dir_.file("model.safetensors");
    source_ = open_source(dir_.path());
  }

  ExpertStore store() const {
    return {source_, describe_model(*source_).index.experts};
  }  // 4 banks of 5
  std::unique_ptr<ExpertStreamer> streamer(std::uint64_t n_slots) {
    return std::make_unique<ExpertStreamer>(store(), budget_, n_slots * store().slot_bytes());
  }

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
    const ExpertStore fresh = store();
    const AlignedBuffer memory(fresh.slot_bytes());
    const ExpertView want = fresh.read(key, memory.data());
    const auto same = [](const WeightView& a, const WeightView& b) {
      return a.rows == b.rows &&
             std::memcmp(a.data, b.data, static_cast<std::size_t>(a.rows * a.cols) * 4) == 0;
    };
    EXPECT_TRUE(same(view.gate, want.gate) && same(view.up, want.up) && same(view.down, want.down))
        << key.bank << ", " << key.expert;
  }

  test::TempDir dir_;
  std::string file_;
  std::shared_ptr<const ModelSource> source_;
  MemoryBudget budget_{std::uint64_t{1} << 30};
};

TEST_F(Streamer, HitsComeBeforeMisses) {
  const auto s = streamer(3);
  take(*s, 0, {1, 3});
  EXPECT_EQ(s->stats().misses, 2u);
  const std::vector<int> order = take(*s, 0, {0, 1, 2, 3});
  EXPECT_EQ(std::set<int>(order.begin(), order.begin() + 2), (std::set<int>{1, 3}));
  EXPECT_EQ(s->stats().hits, 2u);
  EXPECT_EQ(s->stats().misses, 4u);
}

TEST_F(Streamer, CountsTheBytesItRead) {
  const auto s = streamer(3);
  take(*s, 0, {1, 3});
  EXPECT_EQ(s->stats().bytes_read, 2u * 3 * 24 * 48 * 4);  // three matrices of 24 x 48 floats each
}

// What came from the files, not what a slot for the largest expert could hold.
TEST(StreamerOfMixedFormats, CountsTheBytesItRead) {
  const auto source = open_source(test::fixture_path("mlx-qwen-mixed"));
  MemoryBudget budget(1 << 30);
  ExpertStreamer streamer({source, describe_model(*source).index.experts}, budget, 1 << 20);
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
  EXPECT_EQ(streamer.stats().bytes_read, want);
}

TEST_F(Streamer, OneSlotIsEnough) {
  const auto s = streamer(1);
  for (int round = 0; round < 3; ++round) {
    for (int bank = 0; bank < 4; ++bank) take(*s, bank, {4, 0, 2});
  }
  EXPECT_EQ(s->cache_bytes(), store().slot_bytes());
  EXPECT_EQ(s->stats().hits + s->stats().misses, 36u);
}

TEST_F(Streamer, NeverTakesMoreThanItMay) {
  const std::size_t slot = store().slot_bytes();
  EXPECT_EQ(ExpertStreamer(store(), budget_, 0).cache_bytes(), slot);  // at least one
  EXPECT_EQ(ExpertStreamer(store(), budget_, 3 * slot - 1).cache_bytes(), 2 * slot);
  EXPECT_EQ(ExpertStreamer(store(), budget_, UINT64_MAX).cache_bytes(),
            20 * slot);  // all there are
  MemoryBudget small(slot - 1);
  expect_error(Errc::OutOfMemory, {"expert cache"}, [&] { ExpertStreamer(store(), small, slot); });
}

TEST_F(Streamer, EverythingResidentIsReadOnce) {
  const auto s = streamer(20);
  for (int round = 0; round < 3; ++round) {
    for (int bank = 0; bank < 4; ++bank) take(*s, bank, {0, 1, 2, 3, 4});
  }
  EXPECT_EQ(s->stats().misses, 20u);
  EXPECT_EQ(s->stats().hits, 40u);
}

TEST_F(Streamer, ALeaseKeepsItsBytes) {
  const auto s = streamer(2);
  const std::vector<std::int32_t> wanted{2};
  auto request = s->request(1, wanted);
  const auto lease = request.next();
  ASSERT_TRUE(lease.has_value());
  const std::byte* address = lease->view().gate.data;
  for (int bank = 0; bank < 4; ++bank) take(*s, bank, {0, 1, 3, 4});
  EXPECT_EQ(lease->view().gate.data, address);
  expect_bytes(lease->view(), {1, 2});
  EXPECT_FALSE(request.next().has_value());
}

TEST_F(Streamer, AMovedLeaseStillPins) {
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

TEST_F(Streamer, AFailedReadIsAnErrorAndTheCacheGoesOn) {
  const std::string content = read_text_file(file_);
  const auto s = streamer(3);
  take(*s, 0, {0, 1});
  std::filesystem::resize_file(file_, 4096);
  expect_error(Errc::Io, {file_}, [&] { take(*s, 3, {4}); });
  expect_error(Errc::Io, {file_}, [&] { take(*s, 3, {4, 3}); });
  std::fstream(file_, std::ios::binary | std::ios::in | std::ios::out)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  const std::uint64_t misses = s->stats().misses;
  take(*s, 0, {0, 1});  // still there
  EXPECT_EQ(s->stats().misses, misses);
  take(*s, 3, {4, 3});
  take(*s, 3, {0, 1, 2, 3, 4});
}

TEST_F(Streamer, AnEmptyRequestGivesNothing) {
  const auto s = streamer(2);
  auto request = s->request(0, {});
  EXPECT_FALSE(request.next().has_value());
  EXPECT_FALSE(request.next().has_value());
}

TEST_F(Streamer, RandomRequestsAlwaysGiveTheRightBytes) {
  test::Random random(8);
  for (const std::uint64_t n_slots : {1, 2, 7}) {
    const auto s = streamer(n_slots);
    for (int step = 0; step < 120; ++step) {
      std::vector<std::int32_t> experts;
      for (std::int32_t e = 0; e < 5; ++e) {
        if (random.chance(0.5)) experts.push_back(e);
      }
      take(*s, static_cast<int>(random.integer(0, 3)), experts);
    }
  }
}

}  // namespace
}  // namespace moeflux
