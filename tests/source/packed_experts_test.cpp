#include "source/packed_experts.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::TempDir;

std::vector<std::uint64_t> offsets(const PackedBlob& blob) {
  std::vector<std::uint64_t> out;
  for (const PackedPart& part : blob.parts) out.push_back(part.offset);
  return out;
}

constexpr ExpertSizes k397B{.n_experts = 512, .d_model = 4096, .d_ff = 1024};
constexpr ExpertSizes k35B{.n_experts = 256, .d_model = 2048, .d_ff = 512};
constexpr ExpertSizes k671B{.n_experts = 256, .d_model = 7168, .d_ff = 2048};

using Offsets = std::vector<std::uint64_t>;

// The published offsets of the released conversions.
TEST(PackedBlob, OffsetsOfReleasedModels) {
  EXPECT_EQ(packed_blob(k397B, 4).bytes, 7077888u);
  EXPECT_EQ(offsets(packed_blob(k397B, 4)),
            (Offsets{0, 2097152, 2228224, 2359296, 4456448, 4587520, 4718592, 6815744, 6946816}));
  EXPECT_EQ(packed_blob(k397B, 2).bytes, 3932160u);
  EXPECT_EQ(offsets(packed_blob(k397B, 2)),
            (Offsets{0, 1048576, 1179648, 1310720, 2359296, 2490368, 2621440, 3670016, 3801088}));
  EXPECT_EQ(packed_blob(k35B, 4).bytes, 1769472u);
  EXPECT_EQ(offsets(packed_blob(k35B, 4)),
            (Offsets{0, 524288, 557056, 589824, 1114112, 1146880, 1179648, 1703936, 1736704}));
  EXPECT_EQ(packed_blob(k35B, 2).bytes, 983040u);
  EXPECT_EQ(packed_blob(k671B, 4).bytes, 24772608u);
  EXPECT_EQ(packed_blob(k671B, 2).bytes, 13762560u);
}

class PackedLayer : public testing::Test {
 protected:
  static constexpr ExpertSizes kSizes{.n_experts = 3, .d_model = 128, .d_ff = 64};

  void add(std::uint64_t file_bytes, const std::string& layout = "") {
    const std::string path = dir_.write("layer_07.bin", "");
    std::filesystem::resize_file(path, file_bytes);
    add_packed_layer(source_, path, "m.", kSizes, layout);
  }
  std::string layout(const Json& json) const { return dir_.write("layout.json", dump_json(json)); }

  TempDir dir_;
  ModelSource source_{"model", ModelSource::Layout::FlashMoe};
  std::uint64_t four_ = packed_blob(kSizes, 4).bytes;
  std::uint64_t two_ = packed_blob(kSizes, 2).bytes;
};

TEST_F(PackedLayer, FileSizeDecidesTheBits) {
  add(3 * four_);
  const TensorInfo* weight = source_.find("m.down_proj.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{3, 128, 8}));
  EXPECT_EQ(weight->slice_stride, four_);
  EXPECT_EQ(source_.tensors().size(), 9u);

  ModelSource other("model", ModelSource::Layout::FlashMoe);
  std::filesystem::resize_file(dir_.file("layer_07.bin"), 3 * two_);
  add_packed_layer(other, dir_.file("layer_07.bin"), "m.", kSizes, "");
  EXPECT_EQ(other.find("m.down_proj.weight")->shape, (std::vector<std::int64_t>{3, 128, 4}));
  EXPECT_EQ(other.find("m.gate_proj.biases")->shape, (std::vector<std::int64_t>{3, 64, 2}));
}

TEST_F(PackedLayer, OtherSizesAreRefused) {
  for (const std::uint64_t size : {std::uint64_t{0}, 3 * four_ - 1, 3 * four_ + 1, 2 * four_}) {
    expect_error(Errc::BadInput,
                 {"layer_07.bin", "has " + std::to_string(size) + " bytes",
                  std::to_string(3 * four_) + " (4-bit)", std::to_string(3 * two_) + " (2-bit)"},
                 [&] { add(size); });
  }
}

TEST_F(PackedLayer, LayoutMustAgree) {
  const auto expect = [&](const Json& json, std::initializer_list<std::string_view> parts) {
    expect_error(Errc::BadInput, parts, [&] { add(3 * four_, layout(json)); });
  };
  expect({{"expert_size", two_}}, {"layout.json", "expert_size", std::to_string(two_), "4-bit"});
  expect({{"expert_size", four_}, {"num_experts", 4}}, {"layout.json", "num_experts", "4"});
  expect({{"expert_size", "x"}}, {"layout.json", "expert_size"});
  expect(Json::array(), {"layout.json", "must be a JSON object"});
  const Json moved{{"name", "gate_proj.scales"}, {"offset", 1}, {"size", 256}};
  expect({{"expert_size", four_}, {"components", {moved}}},
         {"layout.json", "gate_proj.scales", "256 bytes at 1"});
  const Json unknown{{"name", "side_proj.scales"}, {"offset", 1}, {"size", 256}};
  expect({{"expert_size", four_}, {"components", {unknown}}}, {"side_proj.scales", "not a part"});
}

TEST_F(PackedLayer, LayoutThatAgrees) {
  const Json part{{"name", "up.weight"}, {"offset", four_ / 3}, {"size", 64 * 64}};
  add(3 * four_,
      layout({{"expert_size", four_}, {"num_experts", 3}, {"components", Json::array({part})}}));
  EXPECT_EQ(source_.find("m.up_proj.weight")->offset, four_ / 3);
}

}  // namespace
}  // namespace moeflux
