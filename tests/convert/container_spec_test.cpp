#include "convert/container_spec.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;
using Sizes = std::vector<std::uint64_t>;

TEST(ContainerSpec, LayOut) {
  ContainerSpec spec;
  spec.source_layout = "mlx";
  spec.tensors = {{"a", DType::F32, {3}}, {"b", DType::BF16, {64, 64}}, {"c", DType::U32, {}}};
  spec.banks.push_back(
      {.n_experts = 5,
       .planes = {
           {"w", DType::U32, {4, 5}}, {"s", DType::BF16, {3}}, {"d", DType::F16, {64, 64}}}});
  spec.banks.push_back({.n_experts = 2, .planes = {{"v", DType::F32, {1}}}});
  const ContainerManifest m = lay_out(spec);
  ASSERT_EQ(m.files.size(), 3u);
  EXPECT_EQ(m.files[0].name, "dense.bin");
  EXPECT_EQ(m.tensors[1].offset, 4096u);
  EXPECT_EQ(m.tensors[2].offset, 4096u + 8192);
  EXPECT_EQ(m.files[0].bytes, 4096u + 8192 + 4096);
  const ContainerBank& bank = m.banks[0];
  EXPECT_EQ(bank.planes[1].offset, 128u);  // 80 bytes before it
  EXPECT_EQ(bank.planes[2].offset, 192u);
  EXPECT_EQ(bank.record_bytes, 12288u);
  EXPECT_EQ(m.files[1].name, "experts-000.bin");
  EXPECT_EQ(m.files[1].bytes, 5 * 12288u);
  EXPECT_EQ(m.banks[1].first_checksum, 5u);
  EXPECT_EQ(m.banks[1].record_bytes, 4096u);
  EXPECT_EQ(m.n_records(), 7u);
  // What is laid out can be read.
  EXPECT_EQ(parse_manifest(manifest_text(m), "m").banks.size(), 2u);
}

TEST(ContainerSpec, Divide) {
  EXPECT_EQ(divide(100, 10, {{"a", 1}, {"b", 1}}), (Sizes{50, 50}));
  EXPECT_EQ(divide(100, 10, {{"a", 3}, {"b", 1}}), (Sizes{80, 20}));
  EXPECT_EQ(divide(10, 10, {{"a", 1}, {"b", 1}, {"c", 1}}), (Sizes{0, 10, 0}));
  EXPECT_EQ(divide(30, 10, {{"a", 1}, {"b", 1}, {"c", 1}}), (Sizes{10, 10, 10}));
  EXPECT_EQ(divide(100, 10, {{"a", 1e-9}, {"b", 1e9}}), (Sizes{0, 100}));
  EXPECT_EQ(divide(0, 10, {{"a", 1}, {"b", 1}}), (Sizes{0, 0}));
}

TEST(ContainerSpec, StripesGetTheirShareOfEveryRecord) {
  ContainerSpec spec;
  spec.banks.push_back({.n_experts = 3, .planes = {{"w", DType::U8, {8 * 4096}}}});
  spec.banks.push_back({.n_experts = 3, .planes = {{"v", DType::U8, {10}}}});
  spec.stripes = {{"/ssd1", 3}, {"here", 1}};
  const ContainerManifest m = lay_out(spec);
  ASSERT_EQ(m.files[1].stripes.size(), 2u);
  EXPECT_EQ(m.files[1].stripes[0].bytes_per_record, 6 * 4096u);
  EXPECT_EQ(m.files[1].stripes[1].directory, "here");
  EXPECT_EQ(m.files[1].stripes[1].bytes_per_record, 2 * 4096u);
  ASSERT_EQ(m.files[2].stripes.size(), 1u);  // one page has one place
  EXPECT_TRUE(m.files[0].stripes.empty());
  const std::vector<DataFile> files = data_files(m, 1, "/model");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "/ssd1/experts-000.bin");
  EXPECT_EQ(files[0].bytes, 18 * 4096u);
  EXPECT_EQ(files[1].path, "/model/here/experts-000.bin");
  EXPECT_EQ(files[1].bytes, 6 * 4096u);
}

TEST(ContainerSpec, RefusesImpossibleShapes) {
  ContainerSpec spec;
  spec.tensors = {{"huge", DType::F32, {1 << 30, 1 << 30}}};
  expect_error(Errc::BadInput, {"huge", "impossible"}, [&] { lay_out(spec); });
  spec.tensors = {{"negative", DType::F32, {-1}}};
  expect_error(Errc::BadInput, {"negative"}, [&] { lay_out(spec); });
}

}  // namespace
}  // namespace moeflux
