// A device that looks experts up by itself, played by a thread (fake_backend.h): few slots, many
// experts, reads that fail.
#include <cerrno>
#include <cstring>
#include <set>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "experts/fake_backend.h"
#include "experts/streamer.h"
#include "families/family.h"
#include "support/expect_error.h"
#include "support/fake_reader.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

struct DeviceSetup {
  std::string fixture = "qwen-onekv";  // 4 banks of 5
  double share = 0.3;                  // of all experts
  std::uint64_t seed = 1;
  bool reachable = true;
};

class Device {
 public:
  explicit Device(const DeviceSetup& setup)
      : source_(open_source(test::fixture_path(setup.fixture))),
        banks_(describe_model(*source_).index.experts),
        backend_({.reachable = setup.reachable, .has_device = true, .seed = setup.seed}),
        ids_(backend_.allocate(kMostIds * sizeof(std::int32_t), MemoryKind::Pinned,
                               Backing::Touched)) {
    read_planes();
    ExpertStore store(source_, banks_);
    auto reader = std::make_unique<test::FakeReader>(source_->disk_paths(),
                                                     test::FakeReaderOptions{.seed = setup.seed});
    reader_ = reader.get();
    const auto bytes =
        static_cast<std::uint64_t>(setup.share * static_cast<double>(store.all_bytes()));
    streamer_.emplace(std::move(store), backend_, budget_,
                      ExpertStreamer::Options{
                          .cache_bytes = bytes, .policy = "lru", .reader = std::move(reader)});
    backend_.set_poll([this] { streamer_->poll(); });
    backend_.on_expert = [this](const ExpertsOp& op, int expert, const ExpertPlace& place) {
      compare(op, expert, place);
    };
  }

  ExpertStreamer& streamer() { return *streamer_; }
  test::FakeReader& reader() { return *reader_; }
  test::FakeBackend& backend() { return backend_; }
  int n_wrong() const { return n_wrong_; }

  struct Layer {
    int bank;
    std::vector<std::int32_t> ids;
  };
  // A pass over these layers, all enqueued before the first is done. False when it failed.
  void run(const std::vector<Layer>& layers) {
    streamer_->begin_step(1);
    n_computed_ = 0;
    std::size_t n_wanted = 0, at = 0;
    for (const Layer& layer : layers) {
      auto* ids = reinterpret_cast<std::int32_t*>(ids_->host()) + at;
      std::copy(layer.ids.begin(), layer.ids.end(), ids);
      const auto n = static_cast<std::int64_t>(layer.ids.size());
      backend_.experts({.spec = nullptr,
                        .bank = layer.bank,
                        .h = {},
                        .ids = {.buffer = ids_.get(),
                                .offset = at * sizeof(std::int32_t),
                                .rows = 1,
                                .cols = n,
                                .stride = n,
                                .type = ElementType::I32},
                        .table = streamer_->table(layer.bank),
                        .mailbox = streamer_->mailbox(),
                        .hidden = {},
                        .out = {}});
      at += layer.ids.size();
      n_wanted += std::set(layer.ids.begin(), layer.ids.end()).size();
    }
    backend_.wait_for_all();
    streamer_->rethrow_failure();
    EXPECT_EQ(static_cast<std::size_t>(n_computed_), n_wanted);
    for (const Layer& layer : layers) streamer_->note_uses(layer.bank, layer.ids);
  }

 private:
  static constexpr std::size_t kMostIds = 4096;

  // The bytes of every expert, so that the device's thread need not read files.
  void read_planes() {
    for (const ExpertBank& bank : banks_) {
      auto& experts = planes_.emplace_back();
      for (int e = 0; e < bank.gate.count(); ++e) {
        auto& planes = experts.emplace_back();
        for (const StoredMatrix& m : {bank.gate.at(e), bank.up.at(e), bank.down.at(e)}) {
          for (const Extent* extent : {&m.data, &m.scales, &m.biases}) {
            auto& plane = planes.emplace_back(extent->bytes);
            if (extent->bytes > 0) source_->read(*extent, plane);
          }
        }
      }
    }
  }

  void compare(const ExpertsOp& op, int expert, const ExpertPlace& place) {
    ++n_computed_;
    const auto& planes =
        planes_[static_cast<std::size_t>(op.bank)][static_cast<std::size_t>(expert)];
    for (std::size_t i = 0; i < 9; ++i) {
      const ExpertPlace::Planes& m = place.matrices[i / 3];
      const std::uint64_t offset = i % 3 == 0 ? m.data : i % 3 == 1 ? m.scales : m.biases;
      const std::vector<std::byte>& want = planes[i];
      if (want.empty()
              ? offset != Weight::kNoPlane
              : std::memcmp(op.table.slots->address() + offset, want.data(), want.size()) != 0) {
        ++n_wrong_;
      }
    }
  }

  std::shared_ptr<const ModelSource> source_;
  std::vector<ExpertBank> banks_;
  std::vector<std::vector<std::vector<std::vector<std::byte>>>> planes_;  // bank, expert, plane
  test::FakeBackend backend_;
  std::unique_ptr<Buffer> ids_;
  MemoryBudget budget_{std::uint64_t{1} << 30};
  test::FakeReader* reader_ = nullptr;
  std::optional<ExpertStreamer> streamer_;
  std::atomic<int> n_computed_ = 0, n_wrong_ = 0;
};

std::vector<Device::Layer> random_pass(test::Random& random, const ExpertStore& store) {
  std::vector<Device::Layer> layers;
  for (int bank = 0; bank < store.n_banks(); ++bank) {
    Device::Layer layer{bank, {}};
    const auto n = random.integer(1, 8);
    for (std::int64_t i = 0; i < n; ++i) {
      layer.ids.push_back(static_cast<std::int32_t>(random.integer(0, store.n_experts(bank) - 1)));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

TEST(DeviceService, BringsWhatIsMissingAndNothingTwice) {
  Device device({.share = 1});
  ASSERT_TRUE(device.streamer().is_driven_by_device());
  const std::vector<Device::Layer> pass{{0, {1, 3, 1}}, {2, {0}}};
  device.run(pass);
  const StreamerStats& stats = device.streamer().stats();
  EXPECT_EQ(stats.banks[0].misses, 2u);
  EXPECT_EQ(stats.banks[2].misses, 1u);
  EXPECT_EQ(stats.total().hits, 0u);
  EXPECT_GT(stats.banks[0].wait_ns, 0u);
  const int rounds = device.backend().n_rounds();
  device.run(pass);  // no miss, no host
  EXPECT_EQ(device.backend().n_rounds(), rounds);
  EXPECT_EQ(stats.total().misses, 3u);
  EXPECT_EQ(stats.total().hits, 3u);
  EXPECT_EQ(device.n_wrong(), 0);
}

// Where more is needed than there are slots it comes in rounds.
TEST(DeviceService, OneSlotIsEnough) {
  for (const bool reachable : {true, false}) {
    Device device({.share = 0, .reachable = reachable});
    ASSERT_EQ(device.streamer().cache().n_slots(), 1u);
    for (int i = 0; i < 3; ++i) device.run({{0, {0, 1, 2, 3, 4}}, {1, {4, 0}}, {0, {2, 3}}});
    EXPECT_EQ(device.n_wrong(), 0);
    EXPECT_GE(device.backend().n_rounds(), 3 * 9 - 3);
  }
}

TEST(DeviceService, RandomPassesAlwaysGiveTheRightBytes) {
  for (const char* fixture : {"qwen-onekv", "mlx-qwen-mixed", "container-v1"}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", fixture, seed));
      test::Random random(seed);
      Device device({.fixture = fixture,
                     .share = static_cast<double>(seed) / 6,
                     .seed = seed,
                     .reachable = seed % 2 == 0});
      const ExpertStore& store = device.streamer().store();
      std::vector<ExpertKey> all;
      for (int id = 0; id < store.ids().n_total(); ++id) all.push_back(store.ids().key(id));
      if (seed % 3 == 0) device.streamer().warm(all);
      for (int pass = 0; pass < 15; ++pass) {
        device.run(random_pass(random, store));
        if (random.chance(0.1)) {
          device.streamer().set_capacity(static_cast<std::uint64_t>(
              random.uniform() * static_cast<double>(store.all_bytes())));
        }
      }
      EXPECT_EQ(device.n_wrong(), 0);
    }
  }
}

TEST(DeviceService, AFailedReadEndsThePassAndTheNextGoesOn) {
  for (const bool reachable : {true, false}) {
    Device device({.share = 0.3, .reachable = reachable});
    device.run({{0, {0, 1}}});
    device.reader().fail_when([](const ReadOp&) { return EIO; });
    test::expect_error(Errc::Io, {"expert", "Input/output error"}, [&] {
      device.run({{1, {2, 3}}, {2, {0, 1}}, {3, {4}}});
    });
    EXPECT_EQ(device.backend().n_operations_failed(), 3);
    device.reader().fail_when({});
    device.run({{1, {2, 3}}, {2, {0, 1}}, {3, {4}}});
    EXPECT_EQ(device.n_wrong(), 0);
  }
}

TEST(DeviceService, RandomFailuresAreErrorsOrRightBytes) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed), faults(seed + 100);
    Device device({.share = 0.25, .seed = seed, .reachable = seed % 2 == 0});
    device.reader().fail_when([&](const ReadOp&) { return faults.chance(0.05) ? EIO : 0; });
    int n_failed = 0;
    for (int pass = 0; pass < 20; ++pass) {
      try {
        device.run(random_pass(random, device.streamer().store()));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::Io);
        ++n_failed;
      }
    }
    EXPECT_GT(n_failed, 0);
    EXPECT_EQ(device.n_wrong(), 0);
  }
}

TEST(DeviceService, ObserversSeeTheLayersInOrder) {
  struct Log : RequestObserver {
    void on_step(int n_tokens) override { text += fmt::format("step {};", n_tokens); }
    void on_request(int bank, std::span<const std::int32_t> experts) override {
      text += fmt::format("bank {}: {};", bank, fmt::join(experts, " "));
    }
    std::string text;
  } log;
  Device device({.share = 1});
  device.run({{1, {0}}});
  device.streamer().add_observer(&log);
  device.run({{0, {4, 2, 4}}, {1, {0}}, {2, {3, 1}}});
  EXPECT_EQ(log.text, "step 1;bank 0: 2 4;bank 1: 0;bank 2: 1 3;");
}

// A device may be in the middle of a pass when an engine goes.
TEST(DeviceService, EndsWhileTheDeviceAsks) {
  auto device = std::make_unique<Device>(DeviceSetup{});
  ExpertStreamer& streamer = device->streamer();
  device->backend().set_poll({});
  const std::int32_t ids[] = {0, 1};
  const auto buffer = device->backend().allocate(sizeof ids, MemoryKind::Pinned, Backing::Touched);
  std::memcpy(buffer->host(), ids, sizeof ids);
  device->backend().experts(
      {.spec = nullptr,
       .bank = 0,
       .h = {},
       .ids = {.buffer = buffer.get(), .rows = 1, .cols = 2, .stride = 2, .type = ElementType::I32},
       .table = streamer.table(0),
       .mailbox = streamer.mailbox(),
       .hidden = {},
       .out = {}});
  device.reset();
}

TEST(DeviceService, ABackendThatDoesNotLookUpExpertsHasNoTable) {
  const auto source = open_source(test::fixture_path("qwen-onekv"));
  MemoryBudget budget(1 << 30);
  test::FakeBackend backend;
  const ExpertStreamer streamer({source, describe_model(*source).index.experts}, backend, budget,
                                {.cache_bytes = 1 << 20});
  EXPECT_FALSE(streamer.is_driven_by_device());
}

}  // namespace
}  // namespace moeflux
