#include "convert/synth/synth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>

#include "convert/same_model.h"
#include "convert/synth/synth_text.h"
#include "quant/codec.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

SynthReport make(const std::string& like, int n_layers, const std::string& directory,
                 const SynthOptions& options = {}, bool mtp = false) {
  return synthesize(synth_shape(like, {.n_layers = n_layers, .mtp = mtp}), directory, options);
}

// Row 0 is zero but for its constant columns; the slow columns have twice the spread.
SynthMatrix test_matrix(int bits) {
  return {.module = "m",
          .rows = 64,
          .cols = 256,
          .bits = bits,
          .std = 0.25,
          .row_gain = [](std::int64_t row) { return row == 0 ? 0.0 : 1.0; },
          .constant = [](std::int64_t row) { return row % 2 == 0 ? 0.5 : -0.125; },
          .slow_columns = 64,
          .slow_gain = 2};
}

std::vector<float> decode(const SynthMatrix& m, const RandomStream& random) {
  std::vector<std::vector<std::byte>> planes;
  for (const SynthPlane& plane : planes_of(m)) {
    fill_plane(m, plane, random, 0, planes.emplace_back(plane.bytes));
  }
  WeightView view{.format = {.kind = WeightKind::BF16}, .rows = m.rows, .cols = m.cols};
  view.data = planes[0].data();
  if (m.is_mxfp4) {
    view.format = {
        .kind = WeightKind::Fp4, .bits = 4, .group = kSynthMxGroup, .scale_dtype = DType::U8};
    view.scales = planes[1].data();
  } else if (m.bits < 16) {
    view.format = {.kind = WeightKind::Affine,
                   .bits = m.bits,
                   .group = kSynthGroup,
                   .scale_dtype = DType::BF16};
    view.scales = planes[1].data();
    view.biases = planes[2].data();
  }
  std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
  for (std::int64_t row = 0; row < m.rows; ++row) {
    decode_row(view, row, values.data() + row * m.cols);
  }
  return values;
}

struct Moments {
  double mean = 0, std = 0;
};
Moments moments(const std::vector<float>& values, std::int64_t cols, std::int64_t first,
                std::int64_t last) {
  double sum = 0, squares = 0, n = 0;
  for (std::size_t i = static_cast<std::size_t>(cols); i < values.size(); ++i) {  // not row 0
    const auto column = static_cast<std::int64_t>(i) % cols;
    if (column < first || column >= last) continue;
    sum += values[i];
    squares += double{values[i]} * values[i];
    ++n;
  }
  return {sum / n, std::sqrt(squares / n)};
}

TEST(SynthTensor, WeightsHaveTheWantedStatistics) {
  for (const int bits : {4, 8, 16}) {
    const SynthMatrix m = test_matrix(bits);
    const std::vector<float> values = decode(m, RandomStream(7, "m"));
    for (std::size_t row = 0; row < 64; ++row) {
      for (std::size_t column = 0; column < 64; ++column) {
        ASSERT_EQ(values[row * 256 + column], row % 2 == 0 ? 0.5f : -0.125f);
      }
    }
    for (std::size_t column = 64; column < 256; ++column) ASSERT_EQ(values[column], 0.0f);
    const Moments slow = moments(values, 256, 64, 128), rest = moments(values, 256, 128, 256);
    EXPECT_NEAR(slow.std, 0.5, 0.015) << bits;
    EXPECT_NEAR(rest.std, 0.25, 0.0075) << bits;
    EXPECT_NEAR(rest.mean, 0, 0.01) << bits;
  }
}

// A scale can only be a power of 2: two of them, mixed.
TEST(SynthTensor, Mxfp4HasTheWantedStatistics) {
  SynthMatrix m = test_matrix(4);
  m.is_mxfp4 = true;
  const std::vector<float> values = decode(m, RandomStream(7, "m"));
  for (std::size_t i = 256; i < values.size(); ++i) {
    if (i % 256 < 64) {
      ASSERT_LT(std::abs(values[i]), 1e-30f);
    }
  }
  const Moments slow = moments(values, 256, 64, 128), rest = moments(values, 256, 128, 256);
  EXPECT_NEAR(slow.std, 0.5, 0.025);
  EXPECT_NEAR(rest.std, 0.25, 0.0125);
  EXPECT_NEAR(rest.mean, 0, 0.01);
}

TEST(SynthTensor, PartsAddUpToTheWhole) {
  for (const int bits : {4, 8, 16}) {
    const SynthMatrix m = test_matrix(bits);
    const RandomStream random(7, "m");
    for (const SynthPlane& plane : planes_of(m)) {
      std::vector<std::byte> whole(plane.bytes), parts(plane.bytes);
      fill_plane(m, plane, random, 0, whole);
      const std::uint64_t step = 24;
      for (std::uint64_t at = 0; at < plane.bytes; at += step) {
        fill_plane(m, plane, random, at,
                   std::span(parts).subspan(at, std::min(step, plane.bytes - at)));
      }
      EXPECT_EQ(whole, parts) << plane.name;
    }
  }
}

std::uint64_t routed_bytes(const SynthPlan& plan) {
  std::uint64_t bytes = 0;
  for (const SynthBank& bank : plan.banks) {
    for (const SynthMatrix& matrix : bank.matrices) {
      for (const SynthPlane& plane : planes_of(matrix)) {
        bytes += plane.bytes * static_cast<std::uint64_t>(bank.n_experts);
      }
    }
  }
  return bytes;
}

TEST(SynthPlan, HasTheSizesOfTheReleases) {
  const auto plan = [](const char* name) { return plan_synthesis(synth_shape(name, {}), {}); };
  const SynthPlan small = plan("qwen3.6-35b-a3b");
  EXPECT_EQ(routed_bytes(small), 18'119'393'280u);
  EXPECT_EQ(small.banks.size(), 40u);
  EXPECT_EQ(small.config["quantization"].size(), 3u + 80u);  // gates of 8 bits
  const SynthPlan large = plan("qwen3.5-397b-a17b");
  EXPECT_EQ(routed_bytes(large), 217'432'719'360u);
  EXPECT_EQ(large.config["quantization"].size(), 3u);
  const SynthPlan deepseek = plan("cogito-v2-671b");
  EXPECT_EQ(routed_bytes(deepseek), 367'823'683'584u);
  EXPECT_EQ(deepseek.banks.size(), 58u);
  EXPECT_EQ(deepseek.banks.front().layer, 3);
  EXPECT_EQ(routed_bytes(plan("qwen3-235b-a22b")), 127'741'722'624u);
  EXPECT_EQ(routed_bytes(plan("qwen3-next-80b-a3b")), 43'486'543'872u);
  EXPECT_EQ(routed_bytes(plan("glm-4.6")), 188'979'609'600u);
  EXPECT_EQ(routed_bytes(plan("gpt-oss-120b")), 60'914'073'600u);
  EXPECT_EQ(routed_bytes(plan("minimax-m2")), 126'382'768'128u);
  EXPECT_EQ(routed_bytes(plan("kimi-k2")), 570'760'888'320u);
}

TEST(SynthText, ControlTokensHaveTheirReleasedIds) {
  const auto decoder = [](const char* name) {
    Json config = synth_shape(name, {}).config;
    for (const TextFile& file : synth_text_files(config)) {
      if (file.name == "tokenizer_config.json") {
        return parse_json(file.content, file.name)["added_tokens_decoder"];
      }
    }
    return Json();
  };
  const Json qwen = decoder("qwen3.6-35b-a3b");
  EXPECT_EQ(qwen["248044"]["content"], "<|endoftext|>");
  EXPECT_EQ(qwen["248046"]["content"], "<|im_end|>");
  EXPECT_EQ(qwen["248058"]["content"], "<tool_call>");
  EXPECT_EQ(qwen["248069"]["content"], "</think>");
  EXPECT_EQ(qwen["248069"]["special"], false);
  const Json deepseek = decoder("cogito-v2-671b");
  EXPECT_EQ(deepseek["1"]["content"],
            "<\xEF\xBD\x9C"
            "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>");
  EXPECT_EQ(deepseek["128803"]["content"], "<\xEF\xBD\x9CUser\xEF\xBD\x9C>");
  EXPECT_EQ(deepseek["128814"]["content"], "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>");

  Json config = synth_shape("qwen3.6-35b-a3b", {}).config;
  add_token_ids(config);
  EXPECT_EQ(config["eos_token_id"], Json({248046, 248044}));
}

class SynthFamilies : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, SynthFamilies,
                         testing::Values("tiny-qwen", "tiny-deepseek", "tiny-qwen3-moe",
                                         "tiny-qwen3-next", "tiny-glm", "tiny-gpt-oss",
                                         "tiny-minimax"),
                         [](const auto& test) {
                           std::string name(test.param + sizeof("tiny-") - 1);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// What flash-moe directories and heads for more tokens are made of.
bool is_of_first_families(const std::string& name) {
  return name == "tiny-qwen" || name == "tiny-deepseek";
}

TEST_P(SynthFamilies, EveryFormatHoldsTheSameModel) {
  const TempDir dir;
  const auto with = [](SynthFormat format) {
    SynthOptions options;
    options.format = format;
    options.statistics = {.skew = 1, .seed = 3};
    return options;
  };
  make(GetParam(), 5, dir.file("container"), with(SynthFormat::Container));
  make(GetParam(), 5, dir.file("mlx"), with(SynthFormat::Mlx));
  expect_same_model(*open_source(dir.file("mlx")), *open_source(dir.file("container")));
  const std::vector<float> logits = some_logits(dir.file("mlx"));
  EXPECT_EQ(logits, some_logits(dir.file("container")));
  if (!is_of_first_families(GetParam())) return;
  make(GetParam(), 5, dir.file("flash-moe"), with(SynthFormat::FlashMoe));
  expect_same_experts(*open_source(dir.file("mlx")), *open_source(dir.file("flash-moe")));
  EXPECT_EQ(logits, some_logits(dir.file("flash-moe")));
}

TEST_P(SynthFamilies, DependsOnTheSeedAndOnNothingElse) {
  const TempDir dir;
  SynthOptions options;
  options.n_threads = 1;
  const std::string first = make(GetParam(), 4, dir.file("a"), options).fingerprint;
  options.n_threads = 3;
  EXPECT_EQ(make(GetParam(), 4, dir.file("b"), options).fingerprint, first);
  options.statistics.seed = 1;
  EXPECT_NE(make(GetParam(), 4, dir.file("c"), options).fingerprint, first);
}

TEST_P(SynthFamilies, FewerLayersAreTheFirstOnes) {
  const TempDir dir;
  make(GetParam(), 4, dir.file("four"));
  make(GetParam(), 6, dir.file("six"));
  const auto four = open_source(dir.file("four")), six = open_source(dir.file("six"));
  std::size_t n_same = 0;
  for (const auto& [name, info] : four->tensors()) {
    if (name.find(".layers.") == std::string::npos || !info.contiguous()) continue;
    const TensorInfo* other = six->find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_EQ(read_extent(*four, info.extent()), read_extent(*six, other->extent())) << name;
    ++n_same;
  }
  EXPECT_GT(n_same, 30u);
}

TEST_P(SynthFamilies, TheHeadForMoreTokensIsThereWhenAskedFor) {
  const TempDir dir;
  if (!is_of_first_families(GetParam())) {
    expect_error(Errc::BadInput, {GetParam(), "multi-token"},
                 [&] { make(GetParam(), 4, dir.file("with"), {}, /*mtp=*/true); });
    return;
  }
  make(GetParam(), 4, dir.file("with"), {}, /*mtp=*/true);
  make(GetParam(), 4, dir.file("without"));
  EXPECT_TRUE(describe_model(*open_source(dir.file("with"))).config.mtp.has_value());
  EXPECT_FALSE(describe_model(*open_source(dir.file("without"))).config.mtp.has_value());
}

TEST(Synth, RefusesWhatItCannotMake) {
  const TempDir dir;
  expect_error(Errc::NotFound, {"qwen9", "qwen3.6-35b-a3b"}, [] { synth_shape("qwen9", {}); });
  expect_error(Errc::BadInput, {"from 1 to 40", "41"},
               [] { synth_shape("qwen3.6-35b-a3b", {.n_layers = 41}); });
  expect_error(Errc::BadInput, {"skew", "-1"}, [&] {
    SynthOptions options;
    options.statistics.skew = -1;
    make("tiny-qwen", 1, dir.file("x"), options);
  });
  SynthOptions flash;
  flash.format = SynthFormat::FlashMoe;
  expect_error(Errc::BadInput, {"MTP"},
               [&] { make("tiny-qwen", 1, dir.file("x"), flash, /*mtp=*/true); });
  expect_error(Errc::BadInput, {"--layers"},
               [&] { make("tiny-deepseek", 3, dir.file("x"), flash); });
  EXPECT_FALSE(std::filesystem::exists(dir.file("x")));
}

TEST(Synth, KeepsWhatIsInTheDirectory) {
  for (const SynthFormat format :
       {SynthFormat::Container, SynthFormat::Mlx, SynthFormat::FlashMoe}) {
    const TempDir dir;
    SynthOptions options;
    options.format = format;
    const std::string note = dir.write("notes.txt", "mine");
    expect_error(Errc::BadInput, {dir.path(), "notes.txt", "--force"},
                 [&] { make("tiny-qwen", 2, dir.path(), options); });
    options.force = true;
    make("tiny-qwen", 2, dir.path(), options);
    const std::vector<float> logits = some_logits(dir.path());
    options.statistics.seed = 9;
    make("tiny-qwen", 1, dir.path(), options);  // fewer files than before
    EXPECT_NE(some_logits(dir.path()), logits);
    EXPECT_EQ(read_text_file(note), "mine");
    options.format = format == SynthFormat::Mlx ? SynthFormat::Container : SynthFormat::Mlx;
    expect_error(Errc::BadInput, {"another layout"},
                 [&] { make("tiny-qwen", 1, dir.path(), options); });
  }
}

TEST(Synth, ADiskThatIsTooSmallShowsFirst) {
  for (const SynthFormat format :
       {SynthFormat::Container, SynthFormat::Mlx, SynthFormat::FlashMoe}) {
    const TempDir dir;
    SynthOptions options;
    options.format = format;
    options.free = [](const std::string&) { return std::uint64_t{1} << 20; };
    expect_error(Errc::Io, {dir.path(), "1.0 MiB are free"},
                 [&] { make("tiny-qwen", 2, dir.path(), options); });
  }
}

TEST(Synth, WhatIsStoppedIsNoModel) {
  for (const SynthFormat format :
       {SynthFormat::Container, SynthFormat::Mlx, SynthFormat::FlashMoe}) {
    const TempDir dir;
    SynthOptions options;
    options.format = format;
    options.progress = [](const ConvertProgress& progress) {
      if (progress.bytes_done > progress.bytes_total / 2) fail(Errc::Cancelled, "stop");
    };
    expect_error(Errc::Cancelled, {"stop"}, [&] { make("tiny-qwen", 4, dir.path(), options); });
    EXPECT_THROW(open_source(dir.path()), Error);
    options.progress = {};
    options.force = format != SynthFormat::Container;
    const SynthReport report = make("tiny-qwen", 4, dir.path(), options);
    EXPECT_EQ(report.resumed_bytes > 0, format == SynthFormat::Container);
    some_logits(dir.path());
  }
}

}  // namespace
}  // namespace moeflux::test
