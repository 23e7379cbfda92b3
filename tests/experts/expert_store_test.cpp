#include "experts/expert_store.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "families/family.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

using test::fixture_path;

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
  explicit Store(const std::string& fixture)
      : source_(open_source(fixture_path(fixture))),
        model_(describe_model(*source_)),
        store_(source_, model_.index.experts),
        slot_(store_.slot_bytes()) {}

  const ModelSource& source() const { return *source_; }
  const ExpertStore& operator*() const { return store_; }
  ExpertView read(int bank, int expert) {
    std::memset(slot_.data(), 0xAB, slot_.size());
    for (const ExpertRead& read : store_.reads({bank, expert})) {
      EXPECT_LE(read.slot_offset + read.bytes, slot_.size());
      source_->disk_file(read.disk_file)
          .read(read.offset, {slot_.data() + read.slot_offset, read.bytes});
      EXPECT_EQ(read.slot_offset % ExpertStore::kBlock, read.offset % ExpertStore::kBlock);
    }
    const ExpertView view = store_.view({bank, expert}, slot_.data());
    for (const WeightView* m : {&view.gate, &view.up, &view.down}) {
      EXPECT_GE(m->data, slot_.data());
      EXPECT_LT(m->data, slot_.data() + slot_.size());
    }
    return view;
  }

 private:
  std::shared_ptr<const ModelSource> source_;
  ModelDescription model_;
  ExpertStore store_;
  AlignedBuffer slot_;
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
    const ExpertView view = store.read(2, expert);
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
  const ExpertView draft = store.read(4, 1);
  expect_plane(draft.up.data, raw(store.source(), "mtp.layers.0.mlp.experts.1.up_proj.weight"),
               "mtp");
}

TEST(ExpertStore, OneByOneInFp8) {
  Store store("qwen-fp8");
  const ExpertView view = store.read(1, 3);
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
    const ExpertView view = store.read(1, expert);
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
  const ExpertView view = store.read(1, 5);
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
  const ExpertView view = store.read(2, 4);
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
