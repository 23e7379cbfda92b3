#include "io/pool_reader.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

TEST(PoolReader, ReadsAtTheSameTimeInEveryThread) {
  const TempDir dir;
  // Each read waits until four are under way: with fewer threads working at once none would end in
  // time.
  std::atomic<int> n_reading = 0;
  std::atomic<bool> timed_out = false;
  ReaderOptions options{.threads = 4, .direct = false};
  options.filter = [&](const KernelRead&, std::int64_t result) {
    ++n_reading;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (n_reading < 4 && !timed_out) {
      if (std::chrono::steady_clock::now() > limit) timed_out = true;
      std::this_thread::yield();
    }
    return result;
  };
  PoolReader reader(FileSet({dir.write("file", random_bytes(65536, 1))}, false), options);
  const AlignedBuffer memory(65536);
  std::vector<ReadOp> ops;
  for (std::uint64_t i = 0; i < 4; ++i)
    ops.push_back({0, i * 100, {memory.data() + i * 4096, 4096}, i});
  reader.submit(ops);
  ReadResult result;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(reader.wait({&result, 1}, true), 1u);
  EXPECT_FALSE(timed_out);
}

TEST(PoolReader, DoesNotRegisterMemory) {
  const TempDir dir;
  PoolReader reader(FileSet({dir.write("file", "x")}, true), {.threads = 1});
  const AlignedBuffer memory(4096);
  EXPECT_EQ(reader.register_memory({memory.data(), memory.size()}), EOPNOTSUPP);
  EXPECT_EQ(reader.info().registered_bytes, 0u);
}

TEST(PoolReader, DestructionDropsWhatWaits) {
  const TempDir dir;
  std::atomic<int> n_reads = 0;
  const AlignedBuffer memory(4096);
  {
    ReaderOptions options{.threads = 2};
    options.filter = [&](const KernelRead&, std::int64_t result) {
      ++n_reads;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return result;
    };
    PoolReader reader(FileSet({dir.write("file", std::string(4096, 'x'))}, true), options);
    std::vector<ReadOp> ops;
    for (std::uint64_t i = 0; i < 1000; ++i) ops.push_back({0, i, {memory.data() + i, 1}, i});
    reader.submit(ops);
  }
  EXPECT_LT(n_reads, 100);
}

}  // namespace
}  // namespace moeflux::test
