// The contract of AsyncReader, held by every implementation with and without the page cache.
#include "io/async_reader.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>

#include <unistd.h>

#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

using AsyncReaderTest = ReaderSuite;
INSTANTIATE_TEST_SUITE_P(All, AsyncReaderTest, all_reader_cases(), case_name);

constexpr std::size_t kFileBytes = (std::size_t{6} << 20) + 777;  // ends inside a block

TEST_P(AsyncReaderTest, ReadsAnyOffsetLengthAndPointer) {
  add_file(kFileBytes);
  add_file(123457);
  open();
  if (IsSkipped()) return;
  std::mt19937_64 random(42);
  for (int round = 0; round < 8; ++round) {
    std::vector<Want> wants;
    for (int i = 0; i < 100; ++i) {
      Want want;
      want.file = static_cast<int>(random() % 2);
      const std::size_t size = contents_[static_cast<std::size_t>(want.file)].size();
      const std::size_t longest = std::size_t{1}
                                  << (random() % 22);  // short reads as often as long ones
      want.bytes = std::min<std::size_t>(size, random() % (longest + 1));
      want.offset = random() % (size - want.bytes + 1);
      want.shift = random() % 2 == 0 ? random() % 4096 : want.offset % 4096;
      wants.push_back(want);
    }
    expect_all_read(wants);
  }
}

TEST_P(AsyncReaderTest, ReadsAroundBlockBoundaries) {
  add_file(kFileBytes);
  open();
  if (IsSkipped()) return;
  for (const std::size_t shift : {0, 1, 4, 64, 511, 512, 513, 4095}) {
    std::vector<Want> wants;
    for (const std::uint64_t offset : {0, 1, 511, 512, 513, 4095, 4096, 4097}) {
      for (const std::size_t blocks : {0, 1, 2, 3, 8, 16, 24}) {
        for (const int delta : {-1, 0, 1}) {
          const std::int64_t bytes = static_cast<std::int64_t>(blocks) * 512 + delta;
          if (bytes > 0) wants.push_back({0, offset, static_cast<std::size_t>(bytes), shift});
        }
      }
    }
    expect_all_read(wants);
  }
}

TEST_P(AsyncReaderTest, ReadsUpToTheLastByte) {
  add_file(kFileBytes);
  add_file(1);
  add_file(512);
  open();
  if (IsSkipped()) return;
  std::vector<Want> wants = {{1, 0, 1, 0}, {1, 0, 1, 5}, {2, 0, 512, 0}, {2, 100, 412, 3}};
  for (const std::size_t bytes : {1, 2, 776, 777, 778, 1288, 1289, 5000, 70000, 2000000}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{9}, (kFileBytes - bytes) % 4096}) {
      wants.push_back({0, kFileBytes - bytes, bytes, shift});
    }
  }
  expect_all_read(wants);
}

TEST_P(AsyncReaderTest, EmptyReadsComplete) {
  add_file(1000);
  add_file(0);
  open();
  if (IsSkipped()) return;
  EXPECT_EQ(run({{0, 0, 0, 0}, {0, 1000, 0, 1}, {0, 5000, 0, 0}, {1, 0, 0, 0}}),
            std::vector<int>(4, 0));
  EXPECT_EQ(run({{1, 0, 1, 0}}), std::vector<int>{kEndOfFile});
  std::array<ReadResult, 1> results;
  EXPECT_EQ(reader_->wait(results, true), 0u) << "nothing is in flight, so it must not block";
}

TEST_P(AsyncReaderTest, ReadsTensOfMegabytes) {
  const std::size_t size = (std::size_t{36} << 20) + 333;
  add_file(size);
  open();
  if (IsSkipped()) return;
  expect_all_read({{0, 0, size, 0},
                   {0, 5, size - 5, 5},
                   {0, 5, size - 5, 6},
                   {0, 4096, std::size_t{24} << 20, 0}});
}

TEST_P(AsyncReaderTest, TakesFarMoreThanTheQueueDepth) {
  add_file(kFileBytes);
  open({.queue_depth = 4, .threads = 3});
  if (IsSkipped()) return;
  std::mt19937_64 random(3);
  std::vector<Want> wants;
  for (int i = 0; i < 4000; ++i) {
    wants.push_back({0, random() % (kFileBytes - 5000), 1 + random() % 5000, random() % 4096});
  }
  expect_all_read(wants);
  const ReaderStats stats = reader_->stats();
  EXPECT_EQ(stats.ops, 4000u);
  EXPECT_EQ(stats.failed_ops, 0u);
  EXPECT_GE(stats.kernel_reads, 4000u);
}

TEST_P(AsyncReaderTest, ABytePastTheEndIsAnError) {
  add_file(kFileBytes);
  open();
  if (IsSkipped()) return;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::vector<Want> wants = {{0, kFileBytes - 1, 2, 0},
                                   {0, kFileBytes - 5000, 5001, 0},
                                   {0, kFileBytes - 5000, 5001, 7},
                                   {0, kFileBytes - 2000000, 2000001, 1},
                                   {0, kFileBytes, 1, 0},
                                   {0, kFileBytes + 100000, 100000, 0},
                                   {0, std::uint64_t{1} << 50, 10, 0},
                                   {0, kMax, 1, 0},
                                   {0, kMax - 5000, 4096, 0},
                                   {0, std::uint64_t{1} << 63, 512, 0}};
  for (const int error : run(wants)) EXPECT_EQ(error, kEndOfFile);
  expect_all_read({{0, 0, 4096, 0}});  // and the reader goes on
  EXPECT_EQ(reader_->stats().failed_ops, wants.size());
}

TEST_P(AsyncReaderTest, AFileCutAfterOpenIsAnErrorWhereItIsMissing) {
  const std::string path = add_file(kFileBytes);
  open();
  if (IsSkipped()) return;
  const std::size_t left = 3000001;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(left)), 0);
  EXPECT_EQ(run({{0, 0, 100000, 0},
                 {0, left - 4000, 4000, 0},
                 {0, left - 4000, 4001, 0},
                 {0, left + 4096, 10, 0},
                 {0, 2000000, 3000000, 1}}),
            (std::vector<int>{0, 0, kEndOfFile, kEndOfFile, kEndOfFile}));
}

TEST_P(AsyncReaderTest, AnUnknownFileIsAnError) {
  add_file(1000);
  open();
  if (IsSkipped()) return;
  EXPECT_EQ(run({{-1, 0, 10, 0}, {1, 0, 10, 0}, {0, 0, 10, 0}, {1 << 30, 0, 0, 0}}),
            (std::vector<int>{EBADF, EBADF, 0, EBADF}));
}

TEST_P(AsyncReaderTest, PollNeverBlocksAndGetsThereToo) {
  add_file(kFileBytes);
  open({.queue_depth = 2, .threads = 2});
  if (IsSkipped()) return;
  const AlignedBuffer memory(std::size_t{1} << 20);
  std::vector<ReadOp> ops;
  for (std::uint64_t i = 0; i < 64; ++i) {
    ops.push_back({0, i * 16384, {memory.data() + i * 16384, 16384}, i});
  }
  reader_->submit(ops);
  EXPECT_EQ(reader_->wait({}, true), 0u);
  std::array<ReadResult, 3> results;
  std::size_t n_seen = 0;
  while (reader_->in_flight() > 0) {
    const std::size_t n = reader_->poll(results);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(results[i].error, 0);
    n_seen += n;
    std::this_thread::yield();
  }
  EXPECT_EQ(n_seen, 64u);
  EXPECT_EQ(std::memcmp(memory.data(), contents_[0].data(), memory.size()), 0);
}

TEST_P(AsyncReaderTest, AlignedReadsAreNotCopied) {
  add_file(kFileBytes);
  open();
  if (IsSkipped()) return;
  expect_all_read({{0, 0, 65536, 0}, {0, 8192, std::size_t{4} << 20, 4096}});
  EXPECT_EQ(reader_->stats().copied_bytes, 0u);
  EXPECT_EQ(reader_->stats().kernel_reads, 2u);
  // Pointer and offset agree: one read, and only the two partial blocks are copied.
  expect_all_read({{0, 12345, 1000001, 12345 % 4096}});
  EXPECT_EQ(reader_->stats().kernel_reads, 3u);
  EXPECT_LE(reader_->stats().copied_bytes, 2 * reader_->alignment(0).offset);
}

TEST_P(AsyncReaderTest, WhatWaitsCanBeCancelled) {
  add_file(kFileBytes);
  open({.queue_depth = 1, .threads = 1});
  if (IsSkipped()) return;
  const AlignedBuffer memory(std::size_t{1} << 20);
  const std::vector<ReadOp> ops(500, ReadOp{0, 0, {memory.data(), memory.size()}, 9});
  reader_->submit(ops);
  reader_->cancel_waiting();
  EXPECT_EQ(reader_->in_flight(), 500u);
  std::array<ReadResult, 64> results;
  int n_cancelled = 0;
  int n_read = 0;
  while (reader_->in_flight() > 0) {
    const std::size_t n = reader_->wait(results, true);
    for (const ReadResult& result : std::span(results).first(n)) {
      (result.error == ECANCELED ? n_cancelled : n_read) += 1;
      EXPECT_TRUE(result.error == 0 || result.error == ECANCELED);
    }
  }
  EXPECT_EQ(n_cancelled + n_read, 500);
  EXPECT_GT(n_cancelled, 0);
  expect_all_read({{0, 17, 100000, 0}});
}

TEST_P(AsyncReaderTest, NothingIsWrittenAfterDestruction) {
  add_file(kFileBytes);
  for (int round = 0; round < 5; ++round) {
    open({.queue_depth = 16, .threads = 8});
    if (IsSkipped()) return;
    const AlignedBuffer memory(std::size_t{32} << 20);
    std::vector<ReadOp> ops;
    for (std::uint64_t i = 0; i < 64; ++i) {
      ops.push_back({0, i * 4096, {memory.data() + i * 524288 + i % 3, 500000}, i});
    }
    reader_->submit(ops);
    if (round % 2 == 1) {
      std::array<ReadResult, 4> results;
      reader_->wait(results, true);
    }
    reader_.reset();
    std::memset(memory.data(), 0x33, memory.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::byte* end = memory.data() + memory.size();
    EXPECT_TRUE(std::all_of(static_cast<const std::byte*>(memory.data()), end,
                            [](std::byte byte) { return byte == std::byte{0x33}; }));
  }
}

TEST_P(AsyncReaderTest, ManyFiles) {
  for (int i = 0; i < 40; ++i) add_file(5000 + static_cast<std::size_t>(i) * 333);
  open();
  if (IsSkipped()) return;
  std::vector<Want> wants;
  for (int i = 0; i < 40; ++i) wants.push_back({i, static_cast<std::uint64_t>(i), 4900, 0});
  expect_all_read(wants);
  EXPECT_EQ(reader_->info().direct_files, GetParam().direct ? 40 : 0);
  EXPECT_EQ(reader_->info().buffered_files, GetParam().direct ? 0 : 40);
}

TEST(DescribeReadError, NamesTheCause) {
  EXPECT_EQ(describe_read_error(EIO), "Input/output error");
  EXPECT_EQ(describe_read_error(kEndOfFile), "the file ends before the last byte of the read");
}

}  // namespace
}  // namespace moeflux::test
