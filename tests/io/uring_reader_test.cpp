// What only the io_uring reader has: memory registered with the kernel.
#include "io/uring_reader.h"

#include <array>
#include <thread>

#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

class UringReaderTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const UringSetup setup = open_uring(1);
    if (setup.status != UringStatus::Used) {
      GTEST_SKIP() << "SKIP: " << describe_uring(setup.status, setup.error);
    }
  }

  // Reads into memory at `at` and compares.
  void read_and_check(AsyncReader& reader, std::uint64_t offset, std::span<std::byte> out) {
    reader.submit(std::vector<ReadOp>{{0, offset, out, 1}});
    ReadResult result;
    ASSERT_EQ(reader.wait({&result, 1}, true), 1u);
    ASSERT_EQ(result.error, 0);
    ASSERT_EQ(std::memcmp(out.data(), content_.data() + offset, out.size()), 0);
  }

  TempDir dir_;
  std::string content_ = random_bytes((std::size_t{2} << 20) + 5, 3);
  std::vector<std::string> paths_{dir_.write("file", content_)};
};
INSTANTIATE_TEST_SUITE_P(Direct, UringReaderTest, testing::Bool());

TEST_P(UringReaderTest, ReadsIntoRegisteredMemoryAndAroundIt) {
  const AlignedBuffer memory(std::size_t{4} << 20);
  const auto reader = make_reader(paths_, {.kind = ReaderKind::Uring, .direct = GetParam()});
  const std::span<std::byte> region(memory.data() + (1 << 20), std::size_t{1} << 20);
  const int error = reader->register_memory(region);
  if (error != 0) GTEST_SKIP() << "SKIP: " << describe_read_error(error) << " (ulimit -l)";
  EXPECT_EQ(reader->info().registered_bytes, region.size());

  read_and_check(*reader, 4096, region.first(65536));
  read_and_check(*reader, 0, region);
  read_and_check(*reader, 777, region.subspan(777, 100000));
  read_and_check(*reader, 777, region.subspan(3, 500000));
  read_and_check(*reader, 0, region.last(4096));
  // Across the border of the region, and outside of it.
  read_and_check(*reader, 8192, {region.data() + region.size() - 4096, 8192});
  read_and_check(*reader, 8192, {region.data() - 4096, 8192});
  read_and_check(*reader, 8192, {memory.data(), 8192});
}

TEST_P(UringReaderTest, RegistersSeveralRegionsEvenWithReadsInFlight) {
  const AlignedBuffer memory(std::size_t{8} << 20);
  const auto reader = make_reader(paths_, {.kind = ReaderKind::Uring, .direct = GetParam()});
  std::vector<ReadOp> ops;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::span<std::byte> region(memory.data() + (7 - i) * (1 << 20), 1 << 20);
    const int error = reader->register_memory(region);
    if (error != 0) GTEST_SKIP() << "SKIP: " << describe_read_error(error) << " (ulimit -l)";
    ops.push_back({0, i * 4096, region, i});
    reader->submit(std::span(ops).last(1));
  }
  std::array<ReadResult, 8> results;
  while (reader->in_flight() > 0) {
    const std::size_t n = reader->wait(results, true);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(results[i].error, 0);
  }
  for (const ReadOp& op : ops) {
    EXPECT_EQ(std::memcmp(op.out.data(), content_.data() + op.offset, op.out.size()), 0);
  }
  EXPECT_EQ(reader->info().registered_bytes, memory.size());
}

TEST_P(UringReaderTest, MayBeMadeInOneThreadAndUsedInAnother) {
  const auto reader = make_reader(paths_, {.kind = ReaderKind::Uring, .direct = GetParam()});
  const AlignedBuffer memory(1 << 20);
  for (int i = 0; i < 3; ++i) {
    std::thread([&] { read_and_check(*reader, 100, {memory.data(), memory.size()}); }).join();
  }
}

}  // namespace
}  // namespace moeflux::test
