// Experts that become rows of their format when they have landed.
#include <cstring>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "experts/expert_store.h"
#include "experts/fake_backend.h"
#include "quant/codec.h"
#include "source/read_matrix.h"
#include "source/safetensors.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/stored_formats.h"

namespace moeflux {
namespace {

using test::on_host;
using test::Random;
using test::SafetensorsWriter;

// Lands expert `key` in `slot`, which holds what another expert has left, and prepares it.
void land(const ExpertStore& store, ExpertKey key, std::byte* slot) {
  std::memset(slot, 0xA5, store.slot_bytes());
  for (const ExpertRead& read : store.reads(key))
    store.source()
        .disk_file(read.disk_file)
        .read(read.offset, {slot + read.slot_offset, read.bytes});
  store.prepare(key, slot);
}

void expect_matrix(const ModelSource& source, const StoredMatrix& want, const Weight& got) {
  const LoadedMatrix rows(source, want);
  ASSERT_EQ(arranged(got.format, false), want.format) << want.name;
  std::vector<float> a(static_cast<std::size_t>(want.cols)), b(a.size());
  for (std::int64_t r = 0; r < want.rows; ++r) {
    decode_row(rows.view(), r, a.data());
    decode_row(on_host(got), r, b.data());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << want.name << r;
  }
}

void expect_experts(const std::shared_ptr<const ModelSource>& source, const ExpertBank& bank) {
  for (const bool is_interleaved : {false, true}) {
    test::FakeBackend backend({.is_interleaved = is_interleaved});
    const ExpertStore store(source, {bank}, &backend);
    const auto buffer = backend.allocate(store.slot_bytes(), MemoryKind::Device, Backing::Huge);
    for (int e = 0; e < bank.gate.count(); ++e) {
      land(store, {0, e}, buffer->host());
      const ExpertView view = store.view({0, e}, *buffer, 0);
      expect_matrix(*source, bank.gate.at(e), view.gate);
      expect_matrix(*source, bank.up.at(e), view.up);
      expect_matrix(*source, bank.down.at(e), view.down);
    }
  }
}

// As gpt-oss is released: stacks of FP4 blocks, gate and up in turns.
TEST(ExpertRepack, GateAndUpInTurnsAreReadOnce) {
  constexpr int kExperts = 4;
  constexpr std::int64_t kWide = 96, kNarrow = 40, kInner = 64;
  const test::TempDir dir;
  SafetensorsWriter writer;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    writer.add_counting(name + "_blocks", DType::U8, {kExperts, rows, cols / 32, 16})
        .add_counting(name + "_scales", DType::U8, {kExperts, rows, cols / 32});
  };
  add("gate_up_proj", 2 * kInner, kWide);
  add("down_proj", kNarrow, kInner);
  writer.write(dir.file("model.safetensors"));
  dir.write("config.json", R"({"quantization_config": {"quant_method": "mxfp4"}})");
  const auto source = open_safetensors_directory(dir.path());
  const StoredExpertBank fused =
      find_stacked_matrices(*source, "gate_up_proj", kExperts, 2 * kInner, kWide);
  const ExpertBank bank{
      .gate = fused.pick({{.first = 0, .take = 1, .stride = 2, .count = kInner}}),
      .up = fused.pick({{.first = 1, .take = 1, .stride = 2, .count = kInner}}),
      .down = find_stacked_matrices(*source, "down_proj", kExperts, kNarrow, kInner)};
  expect_experts(source, bank);

  const ExpertStore store(source, {bank});
  const std::uint64_t stored =
      2 * kInner * (kWide / 2 + kWide / 32) + kNarrow * (kInner / 2 + kInner / 32);
  EXPECT_EQ(bank.gate.at(0).bytes() + bank.up.at(0).bytes() + bank.down.at(0).bytes(), stored);
  EXPECT_LT(store.read_bytes({0, 0}), 2 * stored);  // but gaps between planes
  EXPECT_LE(store.slot_bytes(), (stored / ExpertStore::kBlock + 5) * ExpertStore::kBlock);
  EXPECT_GT(store.repack_bytes(), 0u);
  EXPECT_LE(store.repack_bytes(), store.slot_bytes());
}

// Every format as modules of single experts; of the matrices some are stored in rows.
TEST(ExpertRepack, EveryFormat) {
  Random random(31);
  for (const std::string_view format : test::stored_formats()) {
    SCOPED_TRACE(format);
    const test::TempDir dir;
    SafetensorsWriter writer;
    const std::int64_t d = 96, inner = 64;
    for (int e = 0; e < 3; ++e) {
      const auto add = [&](const char* name, std::int64_t rows, std::int64_t cols) {
        const bool in_rows = std::string_view(name) == "up" && random.chance(0.5);
        test::add_stored(writer, random, in_rows ? "bf16" : format, fmt::format("{}.{}", e, name),
                         rows, cols, 32);
      };
      add("gate", inner, d);
      add("up", inner, d);
      add("down", d, inner);
    }
    writer.write(dir.file("model.safetensors"));
    dir.write("config.json", dump_json(test::format_config(format, 32)));
    const auto source = open_safetensors_directory(dir.path());
    const auto each = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      std::vector<StoredMatrix> matrices;
      for (int e = 0; e < 3; ++e)
        matrices.push_back(find_matrix(*source, fmt::format("{}.{}", e, name), rows, cols));
      return StoredExpertBank(std::move(matrices));
    };
    expect_experts(source, {each("gate", inner, d), each("up", inner, d), each("down", d, inner)});
  }
}

TEST(ExpertRepack, AZeroPointThatDoesNotFitNamesTheExpert) {
  const test::TempDir dir;
  Random random(32);
  SafetensorsWriter writer;
  for (const char* name : {"gate", "up", "down"})
    test::add_stored(writer, random, "gptq8", name, 32, 32, 32);
  const auto begin = writer.header()["up.qzeros"]["data_offsets"][0].get<std::size_t>();
  writer.data()[begin] = static_cast<char>(0xFF);
  for (const char* name : {"gate", "up", "down"})
    writer.add_f32(std::string(name) + ".scales", {1, 32}, random.floats(32));
  writer.write(dir.file("model.safetensors"));
  dir.write("config.json", dump_json(test::format_config("gptq8", 32)));
  const auto source = open_safetensors_directory(dir.path());
  const auto one = [&](const char* name) {
    return StoredExpertBank({find_matrix(*source, name, 32, 32)});
  };
  const ExpertStore store(source, {{one("gate"), one("up"), one("down")}});
  std::vector<std::byte> slot(store.slot_bytes());
  test::expect_error(Errc::Unsupported, {"expert 0", "256"}, [&] {
    land(store, {0, 0}, slot.data());
  });
}

}  // namespace
}  // namespace moeflux
