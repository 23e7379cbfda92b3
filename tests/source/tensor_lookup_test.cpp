#include "source/tensor_lookup.h"

#include <cmath>

#include <gtest/gtest.h>

#include "quant/codec.h"
#include "source/safetensors.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::SafetensorsWriter;
using test::TempDir;

class TensorLookup : public testing::Test {
 protected:
  const ModelSource& source() {
    if (!source_) {
      dir_.write("config.json", config_);
      writer_.write(dir_.file("model.safetensors"));
      source_ = open_safetensors_directory(dir_.path());
    }
    return *source_;
  }
  void add_affine(const std::string& module, std::vector<std::int64_t> lead, std::int64_t packed,
                  std::int64_t groups, DType scale = DType::BF16) {
    std::vector<std::int64_t> weight = lead, scales = lead;
    weight.push_back(packed);
    scales.push_back(groups);
    writer_.add_counting(module + ".weight", DType::U32, weight)
        .add_counting(module + ".scales", scale, scales)
        .add_counting(module + ".biases", scale, scales);
  }
  void expect_matrix_error(Errc code, std::initializer_list<std::string_view> parts,
                           const std::string& module, std::int64_t rows, std::int64_t cols) {
    expect_error(code, {dir_.path()}, [&] { find_matrix(source(), module, rows, cols); });
    expect_error(code, parts, [&] { find_matrix(source(), module, rows, cols); });
  }
  std::uint64_t offset(const std::string& name) { return source().find(name)->offset; }

  TempDir dir_;
  SafetensorsWriter writer_;
  std::string config_ = "{}";
  std::shared_ptr<const ModelSource> source_;
};

TEST_F(TensorLookup, PlainMatrices) {
  writer_.add_counting("a.weight", DType::F32, {3, 4})
      .add_counting("b", DType::BF16, {3, 4})
      .add_counting("c.weight", DType::F16, {3, 4, 1})
      .add_counting("d.weight", DType::BF16, {3, 1, 4})
      .add_counting("e.weight", DType::BF16, {4});
  EXPECT_EQ(find_matrix(source(), "a", 3, 4).format.kind, WeightKind::F32);
  const StoredMatrix bare = find_matrix(source(), "b", 3, 4);
  EXPECT_EQ(bare.format.kind, WeightKind::BF16);
  EXPECT_EQ(bare.name, "b");
  EXPECT_EQ(bare.rows, 3);
  EXPECT_EQ(bare.cols, 4);
  EXPECT_EQ(bare.data.offset, offset("b"));
  EXPECT_EQ(bare.data.bytes, 24u);
  EXPECT_EQ(find_matrix(source(), "c", 3, 4).format.kind, WeightKind::F16);
  EXPECT_EQ(find_matrix(source(), "d", 3, 4).data.bytes, 24u);
  EXPECT_EQ(find_matrix(source(), "e", 1, 4).data.bytes, 8u);
  EXPECT_TRUE(has_module(source(), "a"));
  EXPECT_TRUE(has_module(source(), "b"));
  EXPECT_FALSE(has_module(source(), "z"));
}

TEST_F(TensorLookup, AffineBitsAndGroupFollowFromTheShapes) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      add_affine(fmt::format("m{}g{}", bits, group), {2}, 256 * bits / 32, 256 / group, DType::F16);
    }
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const std::string name = fmt::format("m{}g{}", bits, group);
      const StoredMatrix matrix = find_matrix(source(), name, 2, 256);
      EXPECT_EQ(matrix.format.bits, bits);
      EXPECT_EQ(matrix.format.group, group);
      EXPECT_EQ(matrix.format.scale_dtype, DType::F16);
      EXPECT_EQ(matrix.scales.offset, offset(name + ".scales"));
      EXPECT_EQ(matrix.biases.offset, offset(name + ".biases"));
      EXPECT_EQ(matrix.biases.bytes, static_cast<std::uint64_t>(2 * 256 / group * 2));
    }
  }
}

TEST_F(TensorLookup, AffineOfOneRowMayBeAVector) {
  add_affine("gate", {}, 8, 1);
  EXPECT_EQ(find_matrix(source(), "gate", 1, 64).format.bits, 4);
}

TEST_F(TensorLookup, AffineErrors) {
  add_affine("m", {2}, 8, 1);                 // [2, 64] in 4 bits
  add_affine("wide", {2}, 8, 1, DType::U8);   // scales of mxfp4, which has no biases
  add_affine("ints", {2}, 8, 1, DType::I32);  // no scales at all
  add_affine("groups", {2}, 64, 2);           // groups of 256
  writer_.add_counting("bare.weight", DType::U32, {2, 8});
  writer_.add_counting("half.weight", DType::U32, {2, 8});
  writer_.add_counting("half.scales", DType::BF16, {2, 1});
  writer_.add_counting("mixed.weight", DType::U32, {2, 8});
  writer_.add_counting("mixed.scales", DType::BF16, {2, 1});
  writer_.add_counting("mixed.biases", DType::F16, {2, 1});
  expect_matrix_error(Errc::BadInput, {"\"m.weight\" is U32 [2, 8]", "[2, 96]"}, "m", 2, 96);
  expect_matrix_error(Errc::BadInput, {"\"m.weight\" is U32 [2, 8]", "[3, 8]"}, "m", 3, 64);
  expect_matrix_error(Errc::BadInput, {"\"m.weight\"", "2, 3, 4, 5, 6 or 8 bits"}, "m", 2, 256);
  expect_matrix_error(Errc::BadInput, {"\"wide.scales\" is U8", "BF16, F16 or F32"}, "wide", 2, 64);
  expect_matrix_error(Errc::BadInput, {"\"ints.scales\" is I32", "BF16, F16 or F32"}, "ints", 2,
                      64);
  expect_matrix_error(Errc::BadInput, {"\"groups.scales\"", "groups of 32, 64 or 128"}, "groups", 2,
                      512);
  expect_matrix_error(Errc::NotFound, {"\"bare.scales\" is missing", "\"bare.weight\""}, "bare", 2,
                      64);
  expect_matrix_error(Errc::NotFound, {"\"half.biases\" is missing"}, "half", 2, 64);
  expect_matrix_error(Errc::BadInput, {"\"mixed.biases\" is F16 [2, 1]", "BF16 [2, 1]"}, "mixed", 2,
                      64);
}

TEST_F(TensorLookup, MissingAndWrongPlainTensors) {
  writer_.add_counting("a.weight", DType::F32, {3, 4})
      .add_counting("i.weight", DType::I8, {3, 4})
      .add_counting("f.weight", DType::F8E5M2, {3, 4});
  expect_matrix_error(Errc::NotFound, {"\"z.weight\" is missing", "[3, 4]"}, "z", 3, 4);
  expect_matrix_error(Errc::BadInput, {"\"a.weight\" is F32 [3, 4]", "[4, 3]"}, "a", 4, 3);
  expect_matrix_error(Errc::NotFound, {"\"i.weight_scale\" is missing", "I8"}, "i", 3, 4);
  expect_matrix_error(Errc::Unsupported, {"\"f.weight\" is F8_E5M2"}, "f", 3, 4);
}

TEST_F(TensorLookup, Fp8Blocks) {
  config_ = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}})";
  writer_.add_counting("a.weight", DType::F8E4M3, {100, 130})
      .add_counting("a.weight_scale_inv", DType::F32, {2, 3})
      .add_counting("b", DType::F8E4M3, {2, 100, 130})
      .add_counting("b_scale_inv", DType::BF16, {2, 2, 3})
      .add_counting("bare.weight", DType::F8E4M3, {100, 130})
      .add_counting("wrong.weight", DType::F8E4M3, {100, 130})
      .add_counting("wrong.weight_scale_inv", DType::F32, {1, 2})
      .add_counting("half.weight", DType::F8E4M3, {100, 130})
      .add_counting("half.weight_scale_inv", DType::F16, {2, 3});
  const StoredMatrix matrix = find_matrix(source(), "a", 100, 130);
  EXPECT_EQ(describe(matrix.format), "fp8 block 64");
  EXPECT_EQ(matrix.format.scale_dtype, DType::F32);
  EXPECT_EQ(matrix.scales.bytes, 24u);
  const StoredMatrix second = find_stacked_matrices(source(), "b", 2, 100, 130).at(1);
  EXPECT_EQ(second.data.offset, offset("b") + 13000);
  EXPECT_EQ(second.scales.offset, offset("b_scale_inv") + 12);
  EXPECT_EQ(second.scales.bytes, 12u);
  expect_matrix_error(Errc::NotFound, {"\"bare.weight_scale_inv\" is missing"}, "bare", 100, 130);
  expect_matrix_error(Errc::BadInput, {"\"wrong.weight_scale_inv\" is F32 [1, 2]", "[2, 3]"},
                      "wrong", 100, 130);
  expect_matrix_error(Errc::BadInput, {"\"half.weight_scale_inv\" is F16", "F32 or BF16"}, "half",
                      100, 130);
}

TEST_F(TensorLookup, StackedMatrices) {
  add_affine("m", {3, 2}, 8, 1);
  writer_.add_counting("fused", DType::BF16, {3, 4, 5});
  const StoredExpertBank bank = find_stacked_matrices(source(), "m", 3, 2, 64);
  EXPECT_EQ(bank.count(), 3);
  EXPECT_EQ(bank.at(2).data.offset, offset("m.weight") + 2 * 64);
  EXPECT_EQ(bank.at(2).data.bytes, 64u);
  EXPECT_EQ(bank.at(2).scales.offset, offset("m.scales") + 2 * 4);
  EXPECT_EQ(bank.at(2).biases.offset, offset("m.biases") + 2 * 4);
  EXPECT_EQ(find_stacked_matrices(source(), "fused", 3, 4, 5).at(1).data.offset,
            offset("fused") + 40);
  expect_error(Errc::BadInput, {"\"fused\" is BF16 [3, 4, 5]", "[4, 4, 5]"},
               [&] { find_stacked_matrices(source(), "fused", 4, 4, 5); });
  expect_error(Errc::BadInput, {"\"fused\"", "[12, 5]"},
               [&] { find_matrix(source(), "fused", 12, 5); });
}

TEST_F(TensorLookup, Vectors) {
  const std::vector<float> values{1, 2.5f, -3};
  writer_.add_f32("v", {3}, values).add_counting("i", DType::I32, {3});
  StoredVector vector = find_vector(source(), "v", 3);
  EXPECT_EQ(read_vector(source(), vector), values);
  vector.shift = 1;
  EXPECT_EQ(read_vector(source(), vector), (std::vector<float>{2, 3.5f, -2}));
  expect_error(Errc::NotFound, {dir_.path(), "\"x\" is missing", "[3]"},
               [&] { find_vector(source(), "x", 3); });
  expect_error(Errc::BadInput, {dir_.path(), "\"v\" is F32 [3]", "[4]"},
               [&] { find_vector(source(), "v", 4); });
  expect_error(Errc::BadInput, {"\"i\" is I32 [3]", "F32, F16 or BF16"},
               [&] { find_vector(source(), "i", 3); });
}

TEST_F(TensorLookup, StacksOfVectors) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  writer_.add_f32("v", {2, 3}, values);
  const StoredVector vector = find_vector(source(), "v", 3, 2);
  EXPECT_EQ(vector.size, 6);
  EXPECT_EQ(read_vector(source(), vector), values);
  expect_error(Errc::BadInput, {"\"v\" is F32 [2, 3]", "[3, 2]"},
               [&] { find_vector(source(), "v", 2, 3); });
  expect_error(Errc::BadInput, {"\"v\" is F32 [2, 3]", "[6]"},
               [&] { find_vector(source(), "v", 6); });
}

// An element type that cannot be read is no harm until its tensor is needed.
TEST_F(TensorLookup, ElementTypesThatAreNotRead) {
  writer_.add_counting("good.weight", DType::BF16, {3, 4})
      .add_counting("wide.weight", DType::I64, {3, 4})
      .add_counting("bare", DType::U8, {2, 3})
      .add_counting("norm", DType::U8, {4});
  writer_.header()["wide.weight"]["dtype"] = "F64";
  writer_.header()["bare"]["dtype"] = "F8_E5M2FNUZ";
  writer_.header()["norm"]["dtype"] = "F4";
  writer_.header()["norm"]["shape"] = {8};  // half a byte each: bytes and shape are not compared
  add_affine("packed", {2}, 8, 2);
  writer_.header()["packed.scales"]["dtype"] = "F4";

  EXPECT_EQ(find_matrix(source(), "good", 3, 4).rows, 3);
  EXPECT_EQ(source().find("wide.weight"), nullptr);
  ASSERT_NE(source().find_unread("wide.weight"), nullptr);
  EXPECT_EQ(source().find_unread("wide.weight")->dtype, "F64");
  EXPECT_EQ(source().find_unread("good.weight"), nullptr);
  for (const char* module : {"wide", "bare", "good"}) EXPECT_TRUE(has_module(source(), module));
  expect_matrix_error(Errc::Unsupported,
                      {"\"wide.weight\"", "element type F64", "not supported", "[3, 4]"}, "wide", 3,
                      4);
  expect_matrix_error(Errc::Unsupported, {"\"bare\"", "F8_E5M2FNUZ"}, "bare", 2, 3);
  expect_matrix_error(Errc::Unsupported, {"\"packed.scales\"", "F4", "packed.weight"}, "packed", 2,
                      64);
  expect_error(Errc::Unsupported, {dir_.path(), "\"norm\"", "F4", "[8]"},
               [&] { find_vector(source(), "norm", 8); });
  expect_error(Errc::NotFound, {"\"absent\" is missing"},
               [&] { need_tensor(source(), "absent", "why"); });
}

std::vector<float> read_row(const ModelSource& source, const StoredMatrix& m, std::int64_t row) {
  std::vector<std::byte> data(m.data.bytes), scales(m.scales.bytes);
  source.read(m.data, data);
  if (m.scales.bytes > 0) source.read(m.scales, scales);
  std::vector<float> out(static_cast<std::size_t>(m.cols));
  decode_row({.format = m.format,
              .rows = m.rows,
              .cols = m.cols,
              .data = data.data(),
              .scales = scales.data()},
             row, out.data());
  return out;
}

// The same matrix stored in BF16 and in FP8: E4M3 keeps three bits after the leading one.
TEST(TensorLookupReleased, Fp8IsCloseToTheBf16Original) {
  const std::string path = test::source_path("tests/fixtures/dsv3-fp8");
  const auto bf16 = open_source(path + "/original.safetensors"), fp8 = open_source(path);
  const std::string module = "model.layers.0.self_attn.kv_a_proj_with_mqa";
  const TensorInfo* info = bf16->find(module + ".weight");
  ASSERT_NE(info, nullptr);
  const StoredMatrix exact = find_matrix(*bf16, module, info->shape[0], info->shape[1]);
  const StoredMatrix coarse = find_matrix(*fp8, module, info->shape[0], info->shape[1]);
  ASSERT_EQ(coarse.format.kind, WeightKind::Fp8Block);
  for (const std::int64_t r : {std::int64_t{0}, exact.rows / 2, exact.rows - 1}) {
    const std::vector<float> a = read_row(*bf16, exact, r), b = read_row(*fp8, coarse, r);
    float largest = 0;
    for (const float value : a) largest = std::max(largest, std::abs(value));
    for (std::size_t c = 0; c < a.size(); ++c) {
      EXPECT_NEAR(a[c], b[c], std::abs(a[c]) / 16 + largest / 256) << r << " " << c;
    }
  }
}

}  // namespace
}  // namespace moeflux
