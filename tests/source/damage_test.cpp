// Damaged files: whatever the bytes are, opening them succeeds or throws Error.
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "source/model_source.h"
#include "source/safetensors.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::SafetensorsWriter;
using test::TempDir;
using test::write_file;

std::string small_checkpoint() {
  SafetensorsWriter writer;
  writer.metadata("format", "mlx")
      .add_counting("layers.0.weight", DType::U32, {2, 8})
      .add_counting("layers.0.scales", DType::BF16, {2, 1})
      .add_counting("layers.0.biases", DType::BF16, {2, 1})
      .add_counting("norm.weight", DType::F32, {16})
      .add_counting("empty", DType::F32, {0, 4});
  return writer.bytes();
}

// Counts how often `open` succeeded; anything but success or Error fails the test.
struct Outcomes {
  int opened = 0;
  int refused = 0;

  void run(const std::function<void()>& open) {
    try {
      open();
      ++opened;
    } catch (const Error&) {
      ++refused;
    }
  }
};

// Every byte the index promises must be readable.
void read_everything(const ModelSource& source) {
  for (const auto& [name, info] : source.tensors()) {
    std::vector<std::byte> bytes(info.bytes);
    source.read(info.extent(), bytes);
  }
}

TEST(Damage, TruncationAtEveryByteIsAnError) {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const std::string file = small_checkpoint();
  for (std::size_t size = 0; size < file.size(); ++size) {
    write_file(path, std::string_view(file).substr(0, size));
    EXPECT_THROW(open_tensor_file(path), Error) << size << " of " << file.size() << " bytes";
  }
  write_file(path, file);
  EXPECT_EQ(open_tensor_file(path)->tensors().size(), 5u);
}

TEST(Damage, RandomBytesInTheHeader) {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const std::string file = small_checkpoint();
  const std::size_t header_end = file.find("}}") + 10;
  std::mt19937 random(20240501);
  Outcomes outcomes;
  for (int i = 0; i < 4000; ++i) {
    std::string mutant = file;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      mutant[random() % header_end] = static_cast<char>(random() & 0xFF);
    }
    write_file(path, mutant);
    outcomes.run([&] { read_everything(*open_tensor_file(path)); });
  }
  EXPECT_GT(outcomes.opened, 0);
  EXPECT_GT(outcomes.refused, 1000);
}

// Mutations that keep the JSON well-formed get past the parser to the checks of the numbers.
TEST(Damage, RandomNumbersInTheHeader) {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const std::string file = small_checkpoint();
  std::vector<std::size_t> digits;
  for (std::size_t i = 8; i < file.size() && file[i] != '\0'; ++i) {
    if (std::isdigit(static_cast<unsigned char>(file[i])) != 0) digits.push_back(i);
  }
  std::mt19937 random(7);
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = file;
    mutant[digits[random() % digits.size()]] = static_cast<char>('0' + random() % 10);
    mutant[digits[random() % digits.size()]] = static_cast<char>('0' + random() % 10);
    write_file(path, mutant);
    outcomes.run([&] { read_everything(*open_tensor_file(path)); });
  }
  EXPECT_GT(outcomes.opened, 0);
  EXPECT_GT(outcomes.refused, 1000);
}

constexpr const char* kManifest =
    R"({"config": {"kv_lora_rank": 8, "n_routed_experts": 2, "hidden_size": 64,
 "num_hidden_layers": 2, "moe_intermediate_size": 64, "first_k_dense_replace": 1,
 "num_attention_heads": 4, "default_bits": 4, "default_group_size": 64},
 "tensors": {"model.norm.weight": {"offset": 0, "size": 128, "shape": [64], "dtype": "BF16"},
 "lm_head.weight": {"offset": 128, "size": 64, "shape": [2, 8], "dtype": "U32", "bits": 4},
 "lm_head.scales": {"offset": 192, "size": 4, "shape": [2, 1], "dtype": "BF16"}}})";

TEST(Damage, RandomBytesInAManifest) {
  const TempDir dir;
  dir.write("model_weights.bin", std::string(196, 'w'));
  dir.write("packed_experts/layer_01.bin", std::string(2 * 3 * (64 * 32 + 2 * 64 * 2), 'e'));
  const std::string path = dir.write("model_weights.json", kManifest);
  ASSERT_EQ(open_source(dir.path())->tensors().size(), 12u);

  const std::string manifest = kManifest;
  std::mt19937 random(99);
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = manifest;
    const std::size_t at = random() % mutant.size();
    const bool digit = std::isdigit(static_cast<unsigned char>(mutant[at])) != 0;
    mutant[at] = static_cast<char>(digit ? '0' + random() % 10 : random() & 0xFF);
    write_file(path, mutant);
    outcomes.run([&] { open_source(dir.path()); });
  }
  EXPECT_GT(outcomes.opened, 0);
  EXPECT_GT(outcomes.refused, 1000);
}

TEST(Damage, RandomBytesInAConfig) {
  const TempDir dir;
  write_file(dir.file("model.safetensors"), small_checkpoint());
  const std::string config =
      R"({"model_type": "x", "text_config": {"quantization": {"bits": 4, "mode": "affine"}},
 "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
  std::mt19937 random(5);
  Outcomes outcomes;
  for (int i = 0; i < 2000; ++i) {
    std::string mutant = config;
    mutant[random() % mutant.size()] = static_cast<char>(random() & 0xFF);
    write_file(dir.file("config.json"), mutant);
    outcomes.run([&] { open_source(dir.path()); });
  }
  EXPECT_GT(outcomes.opened, 0);
  EXPECT_GT(outcomes.refused, 500);
}

}  // namespace
}  // namespace moeflux
