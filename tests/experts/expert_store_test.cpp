#include "experts/expert_store.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "experts/fake_backend.h"
#include "families/family.h"
#include "quant/codec.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::fixture_path;
using test::on_host;

struct HostView {
  WeightView gate, up, down;
};

// The bytes of expert `e` of a stacked tensor, or of a whole tensor when e < 0; by name, without
// the code under test.
std::vector<std::byte> raw(const ModelSource& source, const std::string& name, int e = -1) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<std::byte> bytes(info->bytes);
  source.file(info->file).read(info->offset, bytes);
  if (e < 0) return bytes;
  const std::size_t each = bytes.size() / static_cast<std::size_t>(info->shape.at(0));
  return {bytes.begin() + static_cast<std::ptrdiff_t>(each) * e,
          bytes.begin() + static_cast<std::ptrdiff_t>(each) * (e + 1)};
}

std::vector<std::byte> half(const std::vector<std::byte>& bytes, int which) {
  const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
  return which == 0 ? std::vector(bytes.begin(), middle) : std::vector(middle, bytes.end());
}

void expect_plane(const std::byte* memory, const std::vector<std::byte>& bytes,
                  const std::string& what) {
  ASSERT_NE(memory, nullptr) << what;
  EXPECT_EQ(std::memcmp(memory, bytes.data(), bytes.size()), 0) << what;
}

class Store {
 public:
  static constexpr std::uint64_t kBefore = 2 * ExpertStore::kBlock;  // the slot is not the first

  explicit Store(const std::string& fixture)
      : source_(open_source(fixture_path(fixture))),
        model_(describe_model(*source_)),
        store_(source_, model_.index.experts),
        slot_(backend_.allocate(store_.slot_bytes() + kBefore, MemoryKind::Device, Backing::Huge)) {
  }

  const ModelSource& source() const { return *source_; }
  const ExpertStore& operator*() const { return store_; }
  HostView read(int bank, int expert) {
    std::byte* slot = slot_->host() + kBefore;
    std::memset(slot, 0xAB, store_.slot_bytes());
    for (const ExpertRead& read : store_.reads({bank, expert})) {
      EXPECT_LE(read.slot_offset + read.bytes, store_.slot_bytes());
      source_->disk_file(read.disk_file).read(read.offset, {slot + read.slot_offset, read.bytes});
      EXPECT_EQ(read.slot_offset % ExpertStore::kBlock, read.offset % ExpertStore::kBlock);
    }
    const ExpertView view = store_.view({bank, expert}, *slot_, kBefore);
    for (const Weight* m : {&view.gate, &view.up, &view.down}) {
      EXPECT_EQ(m->buffer, slot_.get());
      EXPECT_GE(m->data, kBefore);
      EXPECT_LT(m->data, kBefore + store_.slot_bytes());
    }
    return {on_host(view.gate), on_host(view.up), on_host(view.down)};
  }

 private:
  std::shared_ptr<const ModelSource> source_;
  ModelDescription model_;
  test::FakeBackend backend_;
  ExpertStore store_;
  std::unique_ptr<Buffer> slot_;
};

TEST(ExpertStore, CountsExpertsOfAllBanks) {
  const Store store("qwen-ratio3");  // 4 layers and the MTP layer, 6 experts each
  EXPECT_EQ((*store).n_banks(), 5);
  EXPECT_EQ((*store).n_experts(4), 6);
  EXPECT_EQ((*store).n_experts_total(), 30u);
  // 3 matrices of 24 x 72 BF16 that lie apart: each may begin and end inside of a block.
  EXPECT_EQ((*store).slot_bytes() % ExpertStore::kBlock, 0u);
  EXPECT_GE((*store).slot_bytes(), 3u * 24 * 72 * 2);
  EXPECT_LE((*store).slot_bytes(), 3u * 2 * ExpertStore::kBlock);
}

TEST(ExpertStore, OneByOne) {
  Store store("qwen-ratio3");
  for (const int expert : {0, 3, 5}) {
    const HostView view = store.read(2, expert);
    const std::string p = fmt::format("model.layers.2.mlp.experts.{}.", expert);
    EXPECT_EQ(view.gate.rows, 24);
    EXPECT_EQ(view.gate.cols, 72);
    EXPECT_EQ(view.down.rows, 72);
    EXPECT_EQ(view.down.cols, 24);
    expect_plane(view.gate.data, raw(store.source(), p + "gate_proj.weight"), p);
    expect_plane(view.up.data, raw(store.source(), p + "up_proj.weight"), p);
    expect_plane(view.down.data, raw(store.source(), p + "down_proj.weight"), p);
    EXPECT_EQ(view.gate.scales, nullptr);
  }
  const HostView draft = store.read(4, 1);
  expect_plane(draft.up.data, raw(store.source(), "mtp.layers.0.mlp.experts.1.up_proj.weight"),
               "mtp");
}

TEST(ExpertStore, OneByOneInFp8) {
  Store store("qwen-fp8");
  const HostView view = store.read(1, 3);
  const std::string p = "model.language_model.layers.1.mlp.experts.3.";
  EXPECT_EQ(view.gate.format.kind, WeightKind::Fp8Block);
  expect_plane(view.gate.data, raw(store.source(), p + "gate_proj.weight"), p);
  expect_plane(view.gate.scales, raw(store.source(), p + "gate_proj.weight_scale_inv"), p);
  expect_plane(view.down.scales, raw(store.source(), p + "down_proj.weight_scale_inv"), p);
}

TEST(ExpertStore, FusedGateAndUp) {
  Store store("qwen-f16-yarn");
  const std::string p = "model.language_model.layers.1.mlp.experts.";
  for (const int expert : {0, 7}) {
    const HostView view = store.read(1, expert);
    const auto fused = raw(store.source(), p + "gate_up_proj", expert);
    expect_plane(view.gate.data, half(fused, 0), "gate");
    expect_plane(view.up.data, half(fused, 1), "up");
    expect_plane(view.down.data, raw(store.source(), p + "down_proj", expert), "down");
  }
}

TEST(ExpertStore, StackedAndQuantized) {
  Store store("mlx-dsv3-embedq");
  EXPECT_EQ((*store).n_banks(), 2);  // the first layer is dense
  const std::string p = "model.layers.2.mlp.switch_mlp.";
  const HostView view = store.read(1, 5);
  const std::pair<const WeightView*, const char*> parts[] = {
      {&view.gate, "gate_proj"}, {&view.up, "up_proj"}, {&view.down, "down_proj"}};
  for (const auto& [matrix, name] : parts) {
    EXPECT_EQ(matrix->format.bits, 4);
    EXPECT_EQ(matrix->format.group, 64);
    expect_plane(matrix->data, raw(store.source(), p + name + ".weight", 5), name);
    expect_plane(matrix->scales, raw(store.source(), p + name + ".scales", 5), name);
    expect_plane(matrix->biases, raw(store.source(), p + name + ".biases", 5), name);
  }
}

TEST(ExpertStore, FusedAndQuantized) {
  Store store("mlx-qwen-mixed");
  const std::string p = "language_model.model.layers.2.mlp.switch_mlp.";
  const HostView view = store.read(2, 4);
  EXPECT_EQ(view.gate.format.bits, 5);
  EXPECT_EQ(view.up.format.group, 128);
  EXPECT_EQ(view.down.format.bits, 6);
  for (const int which : {0, 1}) {
    const WeightView& matrix = which == 0 ? view.gate : view.up;
    expect_plane(matrix.data, half(raw(store.source(), p + "gate_up_proj.weight", 4), which),
                 "weight");
    expect_plane(matrix.scales, half(raw(store.source(), p + "gate_up_proj.scales", 4), which),
                 "scales");
    expect_plane(matrix.biases, half(raw(store.source(), p + "gate_up_proj.biases", 4), which),
                 "biases");
  }
}

TEST(ExpertStore, ModelsWithoutExperts) {
  const ExpertStore store(open_source(fixture_path("qwen-onekv")), {});
  EXPECT_EQ(store.n_banks(), 0);
  EXPECT_EQ(store.n_experts_total(), 0u);
  EXPECT_EQ(store.slot_bytes(), 0u);
  EXPECT_EQ(store.all_bytes(), 0u);
  EXPECT_TRUE(store.slots_for(1 << 20).empty());
}

// What the backend wants, and the same numbers.
TEST(ExpertStore, PreparedExpertsLieAsTheBackendWants) {
  const auto source = open_source(fixture_path("mlx-dsv3-embedq"));
  const auto banks = describe_model(*source).index.experts;
  test::FakeBackend backend({.is_interleaved = true});
  const ExpertStore in_rows(source, banks), is_interleaved(source, banks, &backend);
  const auto a = backend.allocate(in_rows.slot_bytes(), MemoryKind::Device, Backing::Huge);
  const auto b = backend.allocate(in_rows.slot_bytes(), MemoryKind::Device, Backing::Huge);
  const ExpertKey key{1, 5};
  for (const ExpertRead& read : in_rows.reads(key)) {
    for (const Buffer* slot : {a.get(), b.get()}) {
      source->disk_file(read.disk_file)
          .read(read.offset, {slot->host() + read.slot_offset, read.bytes});
    }
  }
  in_rows.prepare(key, a->host());
  is_interleaved.prepare(key, b->host());
  const ExpertView rows = in_rows.view(key, *a, 0), tiles = is_interleaved.view(key, *b, 0);
  EXPECT_FALSE(rows.up.format.is_interleaved);
  EXPECT_TRUE(tiles.up.format.is_interleaved);
  std::vector<float> want(static_cast<std::size_t>(rows.up.cols)), got(want.size());
  for (std::int64_t row = 0; row < rows.up.rows; ++row) {
    decode_row(on_host(rows.up), row, want.data());
    decode_row(on_host(tiles.up), row, got.data());
    ASSERT_EQ(want, got) << row;
  }
}

// ---- slots of several sizes

TEST(SlotClasses, BanksOfTheSameSizeShareOne) {
  const Store store("qwen-ratio3");
  ASSERT_EQ((*store).classes().size(), 1u);
  EXPECT_EQ((*store).classes()[0].n_experts, 30u);
  EXPECT_EQ((*store).all_bytes(), 30 * (*store).slot_bytes());
  EXPECT_EQ((*store).floor_bytes(3), 3 * (*store).slot_bytes());
}

TEST(SlotClasses, OneClassGetsAllThatFits) {
  const Store store("qwen-ratio3");
  const std::uint64_t slot = (*store).slot_bytes();
  EXPECT_EQ((*store).slots_for(0), SlotCounts{1});
  EXPECT_EQ((*store).slots_for(3 * slot - 1), SlotCounts{2});
  EXPECT_EQ((*store).slots_for(3 * slot), SlotCounts{3});
  EXPECT_EQ((*store).slots_for(3 * slot, 5), SlotCounts{3});
  EXPECT_EQ((*store).slots_for(UINT64_MAX), SlotCounts{30});
}

class MixedSlots : public testing::Test {
 protected:
  std::shared_ptr<const ModelSource> source_ = open_source(fixture_path("mlx-qwen-mixed"));
  ExpertStore store_{source_, describe_model(*source_).index.experts};
};

TEST_F(MixedSlots, ASlotIsAsLargeAsTheExpertsOfItsBanks) {
  ASSERT_GT(store_.classes().size(), 1u);
  std::size_t n_experts = 0;
  for (std::size_t c = 0; c < store_.classes().size(); ++c) {
    const SlotClass& each = store_.classes()[c];
    n_experts += each.n_experts;
    for (const int bank : each.banks) {
      EXPECT_EQ(store_.class_of(bank), static_cast<int>(c));
      for (int e = 0; e < store_.n_experts(bank); ++e) {
        EXPECT_LE(store_.read_bytes({bank, e}), each.slot_bytes);
        EXPECT_GE(store_.read_bytes({bank, e}) + 2 * 9 * ExpertStore::kBlock, each.slot_bytes);
      }
    }
  }
  EXPECT_EQ(n_experts, store_.n_experts_total());
  EXPECT_LT(store_.all_bytes(), store_.n_experts_total() * store_.slot_bytes());
}

TEST_F(MixedSlots, MemoryIsDividedByTheBytesOfTheExperts) {
  const auto classes = store_.classes();
  for (std::uint64_t bytes = 0; bytes < store_.all_bytes() + 2 * store_.slot_bytes();
       bytes += ExpertStore::kBlock) {
    const SlotCounts slots = store_.slots_for(bytes);
    const double part = static_cast<double>(bytes) / static_cast<double>(store_.all_bytes());
    const std::uint64_t left = bytes - std::min(bytes, store_.bytes_of(slots));
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const auto n = static_cast<double>(classes[c].n_experts);
      EXPECT_GE(slots[c], 1u);
      EXPECT_LE(slots[c], classes[c].n_experts);
      EXPECT_GE(static_cast<double>(slots[c]), std::min(part, 1.0) * n - 2);
      if (slots[c] < classes[c].n_experts) {
        EXPECT_LT(left, classes[c].slot_bytes);
      }
    }
    if (bytes >= store_.floor_bytes(1)) {
      EXPECT_LE(store_.bytes_of(slots), bytes);
    }
  }
  EXPECT_EQ(store_.bytes_of(store_.slots_for(UINT64_MAX)), store_.all_bytes());
}

TEST_F(MixedSlots, EveryClassHasWhatARequestNeedsWhereItCan) {
  const std::uint64_t floor = store_.floor_bytes(3);
  for (const std::size_t n : store_.slots_for(floor, 3)) EXPECT_EQ(n, 3u);
  for (const std::size_t n : store_.slots_for(2 * floor, 3)) EXPECT_GE(n, 3u);
  EXPECT_LE(store_.bytes_of(store_.slots_for(floor - 1, 3)), floor - 1);
}

// Gate and up of a fused bank lie side by side: one read fetches both.
TEST(ExpertStore, NeighboursAreFetchedWithOneRead) {
  const Store fused("qwen-f16-yarn");
  EXPECT_EQ((*fused).reads({1, 3}).size(), 2u);
  const Store apart("mlx-dsv3-embedq");
  EXPECT_GT((*apart).reads({0, 3}).size(), 2u);
}

// The container is striped over two directories: a record is one read from each.
TEST(ExpertStore, AContainersExpertIsOneReadPerDriveWithAChecksum) {
  const Store store("container-v1");
  const auto reads = (*store).reads({0, 1});
  ASSERT_EQ(reads.size(), 2u);
  AlignedBuffer slot((*store).slot_bytes());
  std::uint64_t at = 0;
  for (const ExpertRead& read : reads) {
    EXPECT_EQ(read.offset % ExpertStore::kBlock, 0u);
    EXPECT_EQ(read.slot_offset, at);
    at += read.bytes;
    store.source()
        .disk_file(read.disk_file)
        .read(read.offset, {slot.data() + read.slot_offset, read.bytes});
  }
  std::byte& victim = slot.data()[at / 2];
  (*store).prepare({0, 1}, slot.data());
  victim ^= std::byte{4};
  test::expect_error(Errc::Io, {"expert 1", "checksum", "moeflux check"}, [&] {
    (*store).prepare({0, 1}, slot.data());
  });
  victim ^= std::byte{4};
  (*store).prepare({0, 1}, slot.data());
}

}  // namespace
}  // namespace moeflux
