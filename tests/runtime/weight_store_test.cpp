#include "runtime/weight_store.h"

#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "families/family.h"
#include "io/make_reader.h"
#include "source/read_matrix.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/fake_reader.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/stored_formats.h"
#include "support/test_device.h"

namespace moeflux {
namespace {

using test::fixture_path;

void expect_resident(const ModelSource& source, const StoredMatrix& stored, const Weight& view) {
  EXPECT_EQ(view.format, stored.format) << stored.name;
  EXPECT_EQ(view.rows, stored.rows) << stored.name;
  EXPECT_EQ(view.cols, stored.cols) << stored.name;
  EXPECT_EQ(view.block_row0, stored.block_row0) << stored.name;
  const auto expect_plane = [&](const Extent& extent, std::uint64_t offset) {
    if (extent.bytes == 0) {
      EXPECT_EQ(offset, Weight::kNoPlane) << stored.name;
      return;
    }
    const std::byte* memory = view.buffer->host() + offset;
    std::vector<std::byte> bytes(extent.bytes);
    source.read(extent, bytes);
    EXPECT_EQ(std::memcmp(bytes.data(), memory, bytes.size()), 0) << stored.name;
    // Direct reads need no copy.
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, extent.offset % 4096) << stored.name;
  };
  expect_plane(stored.data, view.data);
  expect_plane(stored.scales, view.scales);
  expect_plane(stored.biases, view.biases);
}

void expect_resident(const ModelSource& source, const StoredVector& stored, const View& view) {
  const std::vector<float> values = read_vector(source, stored);
  ASSERT_EQ(view.size(), std::ssize(values)) << stored.name;
  EXPECT_EQ(std::memcmp(values.data(), view.buffer->host() + view.offset, values.size() * 4), 0)
      << stored.name;
}

TEST(WeightStore, HoldsTheBytesOfTheFile) {
  for (const std::string& name : test::fixture_names()) {
    const auto source = open_source(fixture_path(name));
    const ModelDescription model = describe_model(*source);
    MemoryBudget budget(1 << 30);
    std::uint64_t done = 0, total = 0;
    const auto reader = make_reader(source->disk_paths());
    const WeightStore weights(*source, model.index.tensors, *reader, test::host_backend(), budget,
                              [&](std::uint64_t d, std::uint64_t t) {
                                EXPECT_GE(d, done);
                                done = d;
                                total = t;
                              });
    EXPECT_EQ(done, total);
    EXPECT_EQ(weights.bytes(), WeightStore::bytes_needed(model.index.tensors));
    EXPECT_EQ(budget.by_tag().at("dense weights"), weights.bytes());

    const ModelTensors<Stored>& s = model.index.tensors;
    const ModelTensors<Resident>& r = weights.tensors();
    expect_resident(*source, s.embed, r.embed);
    expect_resident(*source, s.final_norm, r.final_norm);
    if (!s.head.empty()) expect_resident(*source, s.head, r.head);
    ASSERT_EQ(r.layers.size(), s.layers.size());
    for (std::size_t i = 0; i < s.layers.size(); ++i) {
      expect_resident(*source, s.layers[i].mixer_norm, r.layers[i].mixer_norm);
      expect_resident(*source, s.layers[i].ffn_norm, r.layers[i].ffn_norm);
      EXPECT_EQ(s.layers[i].mixer.index(), r.layers[i].mixer.index());
      if (const auto* moe = std::get_if<Moe<Stored>>(&s.layers[i].ffn)) {
        const auto& resident = std::get<Moe<Resident>>(r.layers[i].ffn);
        EXPECT_EQ(resident.bank, moe->bank);
        expect_resident(*source, moe->router.weight, resident.router.weight);
        expect_resident(*source, moe->shared.down.weight, resident.shared.down.weight);
      }
    }
    EXPECT_EQ(r.mtp.has_value(), s.mtp.has_value());
    if (s.mtp) expect_resident(*source, s.mtp->final_norm, r.mtp->final_norm);
  }
}

TEST(WeightStore, ATiedHeadIsTheEmbedding) {
  const auto source = open_source(fixture_path("qwen-onekv"));
  const ModelDescription model = describe_model(*source);
  ASSERT_TRUE(model.index.tensors.head.empty());
  MemoryBudget budget(1 << 30);
  const auto reader = make_reader(source->disk_paths());
  const WeightStore weights(*source, model.index.tensors, *reader, test::host_backend(), budget,
                            {});
  EXPECT_EQ(weights.tensors().head.data, weights.tensors().embed.data);
}

// Matrices of every format, into memory that the host reaches and into a device's.
TEST(WeightStore, RepacksWhatIsNotStoredInRows) {
  for (const std::string_view format : test::stored_formats()) {
    SCOPED_TRACE(format);
    const test::TempDir dir;
    test::Random random(41);
    test::SafetensorsWriter writer;
    test::add_stored(writer, random, format, "embed", 64, 96, 32);
    test::add_stored(writer, random, format, "head", 72, 32, 32);
    writer.add_f32("norm", {96}, random.floats(96));
    writer.write(dir.file("model.safetensors"));
    dir.write("config.json", dump_json(test::format_config(format, 32)));
    const auto source = open_source(dir.path());
    ModelTensors<Stored> stored;
    stored.embed = find_matrix(*source, "embed", 64, 96);
    stored.head = find_matrix(*source, "head", 72, 32)
                      .pick({{.first = 3, .take = 2, .stride = 4, .count = 17}});
    stored.final_norm = find_vector(*source, "norm", 96);
    test::TestDevice device(make_backend({.isa = "scalar", .n_threads = 1}, "cpu"), {});
    for (Backend* backend : {&test::host_backend(), static_cast<Backend*>(&device)}) {
      MemoryBudget budget(1 << 30);
      const auto reader = make_reader(source->disk_paths());
      const WeightStore weights(*source, stored, *reader, *backend, budget, {});
      const auto expect_planes = [&](const StoredMatrix& matrix, const Weight& got) {
        const LoadedMatrix want(*source, matrix);
        const auto expect_plane = [&](std::span<const std::byte> plane, std::uint64_t offset) {
          std::vector<std::byte> bytes(plane.size());
          if (bytes.empty()) return;
          backend->download({got.buffer, offset, bytes.size()}, bytes);
          backend->wait_for_all();
          EXPECT_EQ(std::memcmp(bytes.data(), plane.data(), bytes.size()), 0) << matrix.name;
        };
        EXPECT_EQ(got.format, matrix.format);
        expect_plane(want.data(), got.data);
        expect_plane(want.scales(), got.scales);
        expect_plane(want.biases(), got.biases);
      };
      expect_planes(stored.embed, weights.tensors().embed);
      expect_planes(stored.head, weights.tensors().head);
    }
  }
}

TEST(WeightStore, RefusesMoreThanTheBudget) {
  const auto source = open_source(fixture_path("qwen-onekv"));
  const ModelDescription model = describe_model(*source);
  MemoryBudget budget(WeightStore::bytes_needed(model.index.tensors) - 1);
  const auto reader = make_reader(source->disk_paths());
  test::expect_error(Errc::OutOfMemory, {"dense weights"}, [&] {
    WeightStore(*source, model.index.tensors, *reader, test::host_backend(), budget, {});
  });
  EXPECT_EQ(budget.available(), budget.ceiling());
}

TEST(WeightStore, AFileThatShrankIsAnError) {
  const test::TempDir dir;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(fixture_path("qwen-onekv") + "/" + name, dir.file(name));
  }
  const auto source = open_source(dir.path());
  const ModelDescription model = describe_model(*source);
  std::filesystem::resize_file(dir.file("model.safetensors"), 5000);
  MemoryBudget budget(1 << 30);
  const auto reader = make_reader(source->disk_paths());
  test::expect_error(Errc::Io, {dir.file("model.safetensors")}, [&] {
    WeightStore(*source, model.index.tensors, *reader, test::host_backend(), budget, {});
  });
  EXPECT_EQ(reader->in_flight(), 0u);
  EXPECT_EQ(budget.available(), budget.ceiling());
}

TEST(WeightStore, LoadingCanBeInterrupted) {
  const auto source = open_source(fixture_path("qwen-onekv"));
  const ModelDescription model = describe_model(*source);
  MemoryBudget budget(1 << 30);
  test::FakeReader reader(source->disk_paths());
  const auto stop = [](std::uint64_t, std::uint64_t) { fail(Errc::Cancelled, "stop"); };
  test::expect_error(Errc::Cancelled, {"stop"}, [&] {
    WeightStore(*source, model.index.tensors, reader, test::host_backend(), budget, stop);
  });
  EXPECT_EQ(reader.in_flight(), 0u);
  EXPECT_EQ(budget.available(), budget.ceiling());
}

TEST(WeightStore, ADamagedTensorOfAContainerIsNamed) {
  const auto source = open_source(fixture_path("container-v1"));
  const ModelDescription model = describe_model(*source);
  MemoryBudget budget(1 << 30);
  test::FakeReader reader(source->disk_paths());
  reader.flip_bit(3, 17);
  test::expect_error(Errc::Io, {"checksum", "moeflux check"}, [&] {
    WeightStore(*source, model.index.tensors, reader, test::host_backend(), budget, {});
  });
}

}  // namespace
}  // namespace moeflux
