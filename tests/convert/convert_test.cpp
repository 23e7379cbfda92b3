#include "convert/convert.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "convert/same_model.h"
#include "support/flash_moe_writer.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"
#include "support/tiny_model.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

void expect_exact_conversion(const std::string& from) {
  const TempDir dir;
  const std::string to = dir.file("out");
  const ConvertReport report = convert(from, to, {});
  const auto source = open_source(from), container = open_source(to);
  EXPECT_EQ(container->layout(), ModelSource::Layout::Container);
  EXPECT_EQ(container->fingerprint(), report.fingerprint);
  EXPECT_EQ(container->generation_config(), source->generation_config());
  EXPECT_EQ(container->text().chat_template, source->text().chat_template);
  EXPECT_EQ(container->text().tokenizer_json.empty(), source->text().tokenizer_json.empty());
  test::expect_same_model(*source, *container);
  test::expect_same_bits(test::some_logits(from), test::some_logits(to), from);
  EXPECT_FALSE(fs::exists(to + "/convert.progress"));
  for (const auto& entry : fs::directory_iterator(to)) {
    EXPECT_NE(entry.path().extension(), ".part");
  }
}

class ConvertFixture : public testing::TestWithParam<std::string> {};

TEST_P(ConvertFixture, IsExact) {
  expect_exact_conversion(test::fixture_path(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Convert, ConvertFixture, testing::ValuesIn(test::fixture_names()),
                         [](const auto& fixture) {
                           std::string name = fixture.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Convert, EveryFamily) {
  for (const std::string& path : test::family_checkpoints()) expect_exact_conversion(path);
}

TEST(Convert, DemoModels) {
  expect_exact_conversion(test::source_path("models/demo"));
  expect_exact_conversion(test::source_path("models/demo-mla"));
}

TEST(Convert, RandomModels) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const TempDir dir;
    test::Random random(seed);
    seed % 2 == 0 ? test::write_random_qwen(random, dir.path())
                  : test::write_random_deepseek(random, dir.path());
    expect_exact_conversion(dir.path());
  }
}

TEST(Convert, FlashMoeDirectory) {
  const TempDir dir;
  test::write_flash_moe(*open_source(test::source_path("models/demo-mla")), dir.path());
  expect_exact_conversion(dir.path());
}

TEST(Convert, AContainerToAContainer) {
  const TempDir dir;
  convert(test::fixture_path("mlx-qwen-mixed"), dir.file("a"), {});
  const ConvertReport report = convert(dir.file("a"), dir.file("b"), {});
  EXPECT_EQ(report.fingerprint, open_source(dir.file("a"))->fingerprint());
  for (const auto& entry : fs::directory_iterator(dir.file("a"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(read_text_file(dir.file("a/" + name)), read_text_file(dir.file("b/" + name))) << name;
  }
}

TEST(Convert, RecordsHoldWholeExperts) {
  const TempDir dir;
  convert(test::fixture_path("qwen-fp8"), dir.file("out"), {});
  const auto container = open_source(dir.file("out"));
  const ModelIndex index = describe_model(*container).index;
  for (const ExpertBank& bank : index.experts) {
    for (int e = 0; e < bank.gate.count(); ++e) {
      const Record* record = container->find_record(bank.gate.at(e).data);
      ASSERT_NE(record, nullptr);
      EXPECT_EQ(record->extent.offset % 4096, 0u);
      EXPECT_EQ(record->extent.bytes % 4096, 0u);
      EXPECT_NE(record->name.find("expert " + std::to_string(e)), std::string::npos);
      for (const StoredExpertBank* projection : {&bank.gate, &bank.up, &bank.down}) {
        const StoredMatrix matrix = projection->at(e);
        EXPECT_EQ(container->find_record(matrix.data), record);
        EXPECT_EQ(container->find_record(matrix.scales), record);
        EXPECT_EQ((matrix.data.offset - record->extent.offset) % 64, 0u);
      }
    }
  }
}

// gate and up in one FP8 tensor, 24 rows each in blocks of 16: the second row of blocks is half
// gate and half up.
TEST(Convert, FusedFp8ThatBlocksDoNotDivide) {
  const TempDir dir;
  const auto original = open_source(test::fixture_path("qwen-fp8"));
  const std::string model = dir.file("model");
  fs::create_directories(model);
  Json config = original->config();
  config["text_config"]["moe_intermediate_size"] = 24;
  config["quantization_config"]["weight_block_size"] = {16, 16};
  test::write_file(model + "/config.json", dump_json(config));
  test::SafetensorsWriter writer;
  const auto blocks = [](std::int64_t n) { return (n + 15) / 16; };
  const auto add = [&](const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
    writer.add_counting(name, dtype, std::move(shape));
  };
  for (const auto& [name, info] : original->tensors()) {
    if (name.find(".experts.") != std::string::npos || name.ends_with("_scale_inv")) continue;
    const std::vector<std::byte> bytes = test::read_extent(*original, info.extent());
    writer.add(name, info.dtype, info.shape,
               {static_cast<const char*>(static_cast<const void*>(bytes.data())), bytes.size()});
    if (info.dtype == DType::F8E4M3) {
      add(name + "_scale_inv", DType::BF16, {blocks(info.shape[0]), blocks(info.shape[1])});
    }
  }
  for (const char* layer : {"0", "1"}) {
    const std::string mlp = fmt::format("model.language_model.layers.{}.mlp.experts.", layer);
    add(mlp + "gate_up_proj", DType::F8E4M3, {4, 48, 160});
    add(mlp + "gate_up_proj_scale_inv", DType::BF16, {4, 3, 10});
    add(mlp + "down_proj", DType::F8E4M3, {4, 160, 24});
    add(mlp + "down_proj_scale_inv", DType::BF16, {4, 10, 2});
  }
  writer.write(model + "/model.safetensors");
  ASSERT_EQ(describe_model(*open_source(model)).index.experts[0].up.at(0).block_row0, 8);
  expect_exact_conversion(model);
  convert(model, dir.file("out"), {});
  EXPECT_NE(open_source(dir.file("out"))
                ->find("model.language_model.layers.0.mlp.experts.gate_up_proj.weight"),
            nullptr);
}

TEST(Convert, ProgressCountsEveryByteOnce) {
  const TempDir dir;
  std::uint64_t last_written = 0, last_verified = 0, total = 0;
  ConvertOptions options;
  options.progress = [&](const ConvertProgress& progress) {
    std::uint64_t& last =
        progress.stage == ConvertProgress::Stage::Writing ? last_written : last_verified;
    EXPECT_GE(progress.bytes_done, last);
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    last = progress.bytes_done;
    total = progress.bytes_total;
  };
  const ConvertReport report = convert(test::fixture_path("dsv3-kimi"), dir.file("out"), options);
  EXPECT_EQ(last_written, report.bytes);
  EXPECT_EQ(last_verified, report.bytes);
  EXPECT_EQ(total, report.bytes);
  EXPECT_EQ(report.resumed_bytes, 0u);
}

TEST(Convert, ReportsWhatItWrote) {
  const TempDir dir;
  ConvertOptions options;
  options.n_threads = 1;
  options.converted_by = "a test";
  const ConvertReport report = convert(test::source_path("models/demo"), dir.file("out"), options);
  EXPECT_EQ(report.n_records, 9u * 64);
  ASSERT_EQ(report.banks.size(), 9u);
  EXPECT_EQ(report.banks[3].name, "language_model.model.layers.3.mlp");
  ASSERT_EQ(report.banks[3].matrices.size(), 3u);
  EXPECT_EQ(report.banks[3].matrices[1].projection, "up_proj");
  EXPECT_EQ(report.banks[3].matrices[1].to, "affine 4-bit g64");
  EXPECT_FALSE(report.banks[3].matrices[1].requantized);
  const Json manifest = read_json_file(dir.file("out/moeflux.json"));
  EXPECT_EQ(manifest["version"], 2);
  EXPECT_EQ(manifest["banks"][0]["planes"][0]["panels"], true);
  EXPECT_EQ(manifest["source"]["layout"], "mlx");
  EXPECT_EQ(manifest["source"]["converted_by"], "a test");
  EXPECT_EQ(manifest["banks"].size(), 9u);
}

}  // namespace
}  // namespace moeflux
