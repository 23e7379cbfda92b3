// Conversions that store experts in fewer bits.
#include <filesystem>

#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/same_model.h"
#include "quant/codec.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"
#include "support/tiny_model.h"

namespace moeflux {
namespace {

using test::fixture_path;
using test::TempDir;

ConvertReport requantize(const std::string& from, const std::string& to, int bits, int group) {
  ConvertOptions options;
  options.requantize = Requantize{.bits = bits, .group = group};
  return convert(from, to, options);
}

std::vector<float> decoded(const ModelSource& source, const StoredMatrix& m) {
  const auto data = test::read_extent(source, m.data), scales = test::read_extent(source, m.scales),
             biases = test::read_extent(source, m.biases);
  const WeightView view{.format = m.format,
                        .rows = m.rows,
                        .cols = m.cols,
                        .data = data.data(),
                        .scales = scales.data(),
                        .biases = biases.data(),
                        .block_row0 = m.block_row0};
  std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
  for (std::int64_t row = 0; row < m.rows; ++row)
    decode_row(view, row, &values[static_cast<std::size_t>(row * m.cols)]);
  return values;
}

TEST(Requantize, ErrorsAreWhatTheTableSays) {
  const TempDir dir;
  const std::string from = fixture_path("dsv3-kimi");
  const auto source = open_source(from);
  double last = 1;
  for (const int bits : {2, 3, 4, 8}) {
    const std::string to = dir.file(std::to_string(bits));
    const ConvertReport report = requantize(from, to, bits, 32);
    const auto container = open_source(to);
    test::expect_same_dense(*source, *container);
    const ExpertBank a = describe_model(*source).index.experts[1];
    const ExpertBank b = describe_model(*container).index.experts[1];
    double error = 0, norm = 0;
    for (int e = 0; e < a.up.count(); ++e) {
      const auto x = decoded(*source, a.up.at(e)), y = decoded(*container, b.up.at(e));
      for (std::size_t i = 0; i < x.size(); ++i) {
        error += std::pow(static_cast<double>(x[i]) - y[i], 2);
        norm += std::pow(static_cast<double>(x[i]), 2);
      }
    }
    const MatrixReport& up = report.banks[1].matrices[1];
    EXPECT_EQ(up.projection, "up_proj");
    EXPECT_TRUE(up.requantized);
    EXPECT_EQ(up.from, "bf16");
    EXPECT_NEAR(up.relative_error, std::sqrt(error / norm), 1e-6);
    EXPECT_LT(up.relative_error, last);
    last = up.relative_error;
  }
  EXPECT_LT(last, 0.01);  // 8 bits
}

TEST(Requantize, EightBitsHardlyMoveTheLogits) {
  const TempDir dir;
  for (const char* name : {"dsv3-kimi", "qwen-f16-yarn"}) {
    const std::string from = fixture_path(name);
    const std::vector<float> exact = test::some_logits(from);
    double last = 1e9;
    for (const int bits : {2, 4, 8}) {
      const std::string to = dir.file(name + std::to_string(bits));
      requantize(from, to, bits, 32);
      const std::vector<float> logits = test::some_logits(to);
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        error += std::pow(static_cast<double>(exact[i]) - logits[i], 2);
        norm += std::pow(static_cast<double>(exact[i]), 2);
      }
      EXPECT_LT(std::sqrt(error / norm), last) << name << " with " << bits << " bits";
      last = std::sqrt(error / norm);
    }
    EXPECT_LT(last, 0.02) << name;
  }
}

TEST(Requantize, FromFp8AndFromAffine) {
  const TempDir dir;
  const ConvertReport affine =
      requantize(test::source_path("models/demo-mla"), dir.file("a"), 3, 64);
  EXPECT_EQ(affine.banks[0].matrices[0].from, "affine 4-bit g64");
  EXPECT_EQ(affine.banks[0].matrices[0].to, "affine 3-bit g64");
  EXPECT_GT(affine.banks[0].matrices[0].relative_error, 0.05);
  EXPECT_LT(affine.banks[0].matrices[0].relative_error, 0.25);
  // The fixture's experts have 136 columns, which no group divides.
  test::expect_error(Errc::BadInput, {"136 columns", "nor does any other --group"},
                     [&] { requantize(fixture_path("qwen-fp8"), dir.file("b"), 4, 32); });
  EXPECT_FALSE(std::filesystem::exists(dir.file("b")));
}

TEST(Requantize, MoreBitsThanThereAreChangeNothing) {
  const TempDir dir;
  const std::string from = fixture_path("mlx-qwen-3bit");
  const ConvertReport report = requantize(from, dir.file("out"), 4, 64);
  EXPECT_FALSE(report.banks[0].matrices[0].requantized);
  test::expect_same_model(*open_source(from), *open_source(dir.file("out")));
}

TEST(Requantize, ErrorsSurviveAResume) {
  const TempDir dir;
  const std::string from = fixture_path("dsv3-kimi");
  const ConvertReport whole = requantize(from, dir.file("whole"), 2, 32);
  ConvertOptions options;
  options.requantize = Requantize{.bits = 2, .group = 32};
  options.checkpoint_bytes = 1;
  options.progress = [](const ConvertProgress& p) {
    if (p.bytes_done > p.bytes_total - p.bytes_total / 8) fail(Errc::Cancelled, "stop");
  };
  EXPECT_THROW(convert(from, dir.file("parts"), options), Error);
  options.progress = {};
  const ConvertReport parts = convert(from, dir.file("parts"), options);
  EXPECT_GT(parts.resumed_bytes, 0u);
  for (std::size_t i = 0; i < whole.banks.size(); ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(whole.banks[i].matrices[j].relative_error,
                parts.banks[i].matrices[j].relative_error);
      EXPECT_GT(whole.banks[i].matrices[j].relative_error, 0.1);
    }
  }
}

TEST(Requantize, WeightsThatAreNotFiniteAreRefused) {
  const TempDir dir;
  test::Random random(4);
  for (const char* name : {"config.json", "model-00001-of-00002.safetensors",
                           "model-00002-of-00002.safetensors", "model.safetensors.index.json"}) {
    std::filesystem::copy(fixture_path("dsv3-kimi") + "/" + name, dir.file(name));
  }
  const auto source = open_source(dir.path());
  const StoredMatrix m = describe_model(*source).index.experts[0].down.at(2);
  const std::string path = source->file(m.data.file).path();
  std::string bytes = read_text_file(path);
  bytes[m.data.offset + 10] = static_cast<char>(0x80);  // BF16 infinity
  bytes[m.data.offset + 11] = static_cast<char>(0x7F);
  test::write_file(path, bytes);
  test::expect_error(Errc::BadInput, {"down_proj", "expert 2", "not finite"},
                     [&] { requantize(dir.path(), dir.file("out"), 4, 32); });
}

}  // namespace
}  // namespace moeflux
