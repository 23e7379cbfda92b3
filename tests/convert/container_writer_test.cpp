#include "convert/container_writer.h"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "convert/directory_bytes.h"
#include "source/container.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class ContainerWriterTest : public testing::Test {
 protected:
  ContainerWriterTest() {
    spec_.source_layout = "safetensors";
    spec_.converted_by = "test";
    spec_.tensors = {{"a", DType::U8, {5000}}, {"b", DType::F32, {2, 3}}};
    for (const char* name : {"l0.experts.w", "l1.experts.w"}) {
      spec_.banks.push_back(
          {.n_experts = 6,
           .planes = {{name, DType::U8, {100, 50}}, {name + std::string("2"), DType::U8, {70}}}});
    }
  }

  std::string directory() const { return dir_.file("out"); }
  WriterOptions options(std::string identity = "id") const {
    WriterOptions options;
    options.identity = std::move(identity);
    options.checkpoint_bytes = 1;  // every piece at once
    return options;
  }

  static void fill(std::uint64_t offset, std::span<std::byte> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>((offset + i) * 7);
  }
  static std::vector<std::byte> record(const ContainerWriter& writer, std::size_t bank,
                                       int expert) {
    const ContainerBank& layout = writer.layout().banks[bank];
    std::vector<std::byte> bytes(layout.record_bytes);
    for (const ContainerPlane& plane : layout.planes) {
      for (std::uint64_t i = 0; i < plane.bytes; ++i) {
        bytes[plane.offset + i] =
            static_cast<std::byte>(i + bank * 31 + static_cast<std::size_t>(expert));
      }
    }
    return bytes;
  }
  static void write_all(ContainerWriter& writer) {
    writer.write_text("config.json", "{}");
    for (std::size_t i = 0; i < 2; ++i) {
      if (!writer.has_tensor(i)) writer.write_tensor(i, fill);
    }
    for (std::size_t bank = 0; bank < 2; ++bank) {
      for (int e = 5; e >= 0; --e) {
        if (!writer.has_record(bank, e)) writer.write_record(bank, e, record(writer, bank, e));
      }
    }
  }

  test::TempDir dir_;
  ContainerSpec spec_;
};

TEST_F(ContainerWriterTest, WhatIsWrittenIsRead) {
  ContainerWriter writer(directory(), spec_, options());
  EXPECT_THROW(open_source(directory()), Error);
  write_all(writer);
  EXPECT_THROW(open_source(directory()), Error);
  writer.finish({}, {});
  const auto source = open_source(directory());
  EXPECT_EQ(source->tensors().size(), 6u);
  EXPECT_EQ(source->conventions(), ModelSource::Layout::Safetensors);
  EXPECT_EQ(source->records().size(), 14u);
  std::vector<std::byte> a(5000), expected(5000);
  source->read(source->find("a")->extent(), a);
  fill(0, expected);
  EXPECT_EQ(a, expected);
  const TensorInfo* w = source->find("l1.experts.w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (std::vector<std::int64_t>{6, 100, 50}));
  std::vector<std::byte> slice(1);
  source->read({w->file, w->offset + 4 * w->slice_stride + 9, 1}, slice);
  EXPECT_EQ(slice[0], static_cast<std::byte>(9 + 31 + 4));
}

TEST_F(ContainerWriterTest, ThreadsMayWriteAtOnce) {
  {
    ContainerWriter alone(dir_.file("alone"), spec_, options());
    write_all(alone);
    alone.finish({}, {});
  }
  ContainerWriter writer(directory(), spec_, options());
  writer.write_text("config.json", "{}");
  std::vector<std::jthread> threads;
  for (std::size_t bank = 0; bank < 2; ++bank) {
    threads.emplace_back([&, bank] {
      for (int e = 0; e < 6; ++e) writer.write_record(bank, e, record(writer, bank, e));
    });
    threads.emplace_back([&, bank] {
      if (!writer.has_tensor(bank)) writer.write_tensor(bank, fill);
    });
  }
  threads.clear();
  writer.finish({}, {});
  EXPECT_EQ(test::directory_bytes(directory()), test::directory_bytes(dir_.file("alone")));
}

TEST_F(ContainerWriterTest, ResumesWhatIsOnTheDisk) {
  {
    ContainerWriter writer(directory(), spec_, options());
    writer.write_tensor(1, fill);
    writer.write_record(1, 4, record(writer, 1, 4), "a note");
  }
  EXPECT_TRUE(fs::exists(directory() + "/convert.progress"));
  ContainerWriter writer(directory(), spec_, options());
  EXPECT_FALSE(writer.has_tensor(0));
  EXPECT_TRUE(writer.has_tensor(1));
  EXPECT_TRUE(writer.has_record(1, 4));
  EXPECT_FALSE(writer.has_record(0, 4));
  EXPECT_EQ(writer.record_note(1, 4), "a note");
  EXPECT_EQ(writer.resumed_bytes(), 24u + 8192);
  write_all(writer);
  writer.finish({}, {});
  EXPECT_EQ(open_source(directory())->records().size(), 14u);
}

TEST_F(ContainerWriterTest, RefusesOtherWork) {
  { ContainerWriter writer(directory(), spec_, options("one")); }
  expect_error(Errc::BadInput, {directory(), "another source", "--force"},
               [&] { ContainerWriter(directory(), spec_, options("two")); });
  WriterOptions over = options("two");
  over.start_over = true;
  ContainerWriter writer(directory(), spec_, over);
  write_all(writer);
  writer.finish({}, {});
  expect_error(Errc::BadInput, {"holds a container already", "--force"},
               [&] { ContainerWriter(directory(), spec_, options("two")); });
}

TEST_F(ContainerWriterTest, StartingOverMakesTheOldOneDisappear) {
  {
    ContainerWriter writer(directory(), spec_, options());
    write_all(writer);
    writer.finish({}, {});
  }
  const auto before = test::directory_bytes(directory());
  WriterOptions over = options();
  over.start_over = true;
  ContainerWriter writer(directory(), spec_, over);
  EXPECT_THROW(open_source(directory()), Error);
  EXPECT_FALSE(writer.has_record(0, 0));
  write_all(writer);
  writer.finish({}, {});
  EXPECT_EQ(test::directory_bytes(directory()), before);
}

TEST_F(ContainerWriterTest, StartingOverRemovesOnlyItsOwnFiles) {
  dir_.write("out/thesis.txt", "precious");
  dir_.write("out/film.mkv.part", "half a film");
  dir_.write("out/experts-000.bin", "old");
  dir_.write("out/experts-777.bin", "of a larger model");
  dir_.write("out/checksums.bin.part", "half");
  WriterOptions over = options();
  over.start_over = true;
  ContainerWriter writer(directory(), spec_, over);
  EXPECT_FALSE(fs::exists(directory() + "/experts-777.bin"));
  EXPECT_FALSE(fs::exists(directory() + "/checksums.bin.part"));
  write_all(writer);
  writer.finish({}, {});
  EXPECT_EQ(read_text_file(directory() + "/thesis.txt"), "precious");
  EXPECT_EQ(read_text_file(directory() + "/film.mkv.part"), "half a film");
  EXPECT_EQ(open_source(directory())->records().size(), 14u);
}

TEST_F(ContainerWriterTest, RefusesALogWithAnotherIdentity) {
  for (const char* identity : {"17", "null", "[\"id\"]", "{}", "\"another\""}) {
    dir_.write("out/convert.progress",
               fmt::format("{{\"format\":\"moeflux-convert-1\",\"identity\":{}}}\n", identity));
    expect_error(Errc::BadInput, {"another source", "--force"},
                 [&] { ContainerWriter(directory(), spec_, options()); });
  }
  dir_.write("out/convert.progress", "{\"format\":\"moeflux-convert-1\"}\n");
  expect_error(Errc::BadInput, {"another source"},
               [&] { ContainerWriter(directory(), spec_, options("")); });
}

// The log's name comes last, so that its first line is whole or absent.
TEST_F(ContainerWriterTest, BeginsAgainAfterAKillBeforeTheFirstLine) {
  dir_.write("out/convert.progress.part", "{\"form");
  ContainerWriter writer(directory(), spec_, options());
  write_all(writer);
  writer.finish({}, {});
  EXPECT_FALSE(fs::exists(directory() + "/convert.progress.part"));
}

TEST_F(ContainerWriterTest, OneWriterAtATime) {
  {
    ContainerWriter writer(directory(), spec_, options());
    WriterOptions over = options();
    over.start_over = true;
    for (const WriterOptions& second : {options(), over}) {
      expect_error(Errc::BadInput, {directory(), "another conversion"},
                   [&] { ContainerWriter(directory(), spec_, second); });
    }
    write_all(writer);
  }
  ContainerWriter writer(directory(), spec_, options());
  EXPECT_TRUE(writer.has_tensor(0) && writer.has_record(1, 5));
}

TEST_F(ContainerWriterTest, RefusesADirectoryWithOtherThings) {
  dir_.write("out/film.mkv.part", "half a film");
  expect_error(Errc::BadInput, {"not empty", "film.mkv.part"},
               [&] { ContainerWriter(directory(), spec_, options()); });
  fs::remove(directory() + "/film.mkv.part");
  dir_.write("out/thesis.txt", "precious");
  expect_error(Errc::BadInput, {"not empty", "thesis.txt"},
               [&] { ContainerWriter(directory(), spec_, options()); });
  dir_.write("file", "");
  expect_error(Errc::Io, {"cannot create"},
               [&] { ContainerWriter(dir_.file("file"), spec_, options()); });
}

TEST_F(ContainerWriterTest, RefusesFilesThatAreInAStripe) {
  dir_.write("stripe/experts-001.bin", "another model's");
  spec_.stripes = {{dir_.file("stripe"), 1}};
  expect_error(Errc::BadInput, {"stripe/experts-001.bin", "already there"},
               [&] { ContainerWriter(directory(), spec_, options()); });
  EXPECT_EQ(read_text_file(dir_.file("stripe/experts-001.bin")), "another model's");
}

TEST_F(ContainerWriterTest, WhatDoesNotReadBackIsNotPublished) {
  ContainerWriter writer(directory(), spec_, options());
  write_all(writer);
  const std::string path = directory() + "/experts-001.bin";
  std::string bytes = read_text_file(path);
  bytes[3 * 8192 + 10] = static_cast<char>(bytes[3 * 8192 + 10] ^ 4);
  dir_.write("out/experts-001.bin", bytes);
  expect_error(Errc::Io, {"experts-001.bin", "l1", "expert 3", "does not read back"},
               [&] { writer.finish({}, {}); });
  EXPECT_THROW(open_source(directory()), Error);
}

TEST_F(ContainerWriterTest, WhatIsNotAcceptedIsNotPublished) {
  ContainerWriter writer(directory(), spec_, options());
  write_all(writer);
  EXPECT_THROW(writer.finish({}, [](const ModelSource&) { fail(Errc::Unsupported, "no"); }), Error);
  EXPECT_THROW(open_source(directory()), Error);
}

TEST_F(ContainerWriterTest, UnfinishedWorkIsAnErrorOfTheCaller) {
  ContainerWriter writer(directory(), spec_, options());
  EXPECT_THROW(writer.finish({}, {}), std::logic_error);
}

TEST_F(ContainerWriterTest, AModelWithoutExperts) {
  spec_.banks.clear();
  ContainerWriter writer(directory(), spec_, options());
  writer.write_text("config.json", "{}");
  writer.write_tensor(0, fill);
  writer.write_tensor(1, fill);
  writer.finish({}, {});
  EXPECT_EQ(open_source(directory())->tensors().size(), 2u);
}

TEST_F(ContainerWriterTest, FingerprintsDifferWhenAnyWeightDoes) {
  const auto fingerprint = [&](const std::string& name, std::size_t bank, bool other_dense) {
    ContainerWriter writer(dir_.file(name), spec_, options());
    writer.write_text("config.json", "{}");
    for (std::size_t i = 0; i < 2; ++i) {
      writer.write_tensor(i, [&](std::uint64_t at, std::span<std::byte> out) {
        fill(at + (other_dense ? 1 : 0), out);
      });
      for (int e = 0; e < 6; ++e) writer.write_record(i, e, record(writer, i == 1 ? bank : i, e));
    }
    writer.finish({}, {});
    return open_source(dir_.file(name))->fingerprint();
  };
  const std::string first = fingerprint("one", 1, false);
  EXPECT_EQ(fingerprint("same", 1, false), first);
  EXPECT_NE(fingerprint("dense", 1, true), first);
  EXPECT_NE(fingerprint("experts", 0, false), first);
}

TEST_F(ContainerWriterTest, RefusesWhenTheDiskIsTooSmall) {
  WriterOptions small = options();
  small.free = [](const std::string&) { return std::uint64_t{1000}; };
  expect_error(Errc::Io, {"out", "only 1000 B"},
               [&] { ContainerWriter(directory(), spec_, small); });
}

}  // namespace
}  // namespace moeflux
