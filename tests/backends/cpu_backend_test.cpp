// Memory of the CPU backend: what it allocates, copies and gives back.
#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "backends/random_weight.h"
#include "quant/interleave.h"

namespace moeflux {
namespace {

std::vector<std::byte> counted(std::size_t n, int first = 1) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<std::byte>((static_cast<std::size_t>(first) + i * 7) & 0xFF);
  return bytes;
}

std::vector<std::byte> contents(Backend& backend, const Bytes& from) {
  std::vector<std::byte> bytes(from.size);
  backend.download(from, bytes);
  backend.wait_for_all();
  return bytes;
}

class CpuMemory : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend = make_backend({.n_threads = 3});
};

TEST_F(CpuMemory, IsZeroAndTheHostReachesIt) {
  for (const MemoryKind kind : {MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Host}) {
    for (const Backing backing : {Backing::Touched, Backing::Huge}) {
      for (const std::uint64_t bytes :
           {std::uint64_t{1}, std::uint64_t{4097}, std::uint64_t{3} << 20}) {
        const auto buffer = backend->allocate(bytes, kind, backing);
        EXPECT_EQ(buffer->kind(), kind);
        EXPECT_EQ(buffer->bytes(), bytes);
        EXPECT_EQ(buffer->host(), buffer->address());
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->address()) % 64, 0u);
        EXPECT_TRUE(std::all_of(buffer->host(), buffer->host() + bytes,
                                [](std::byte b) { return b == std::byte{0}; }));
      }
    }
  }
}

TEST_F(CpuMemory, UploadsAndDownloads) {
  const auto buffer = backend->allocate(100, MemoryKind::Device);
  const std::vector<std::byte> bytes = counted(40);
  backend->upload(bytes, {buffer.get(), 30, 40});
  EXPECT_EQ(contents(*backend, {buffer.get(), 30, 40}), bytes);
  const std::vector<std::byte> all = contents(*backend, whole(*buffer));
  EXPECT_EQ(std::count(all.begin(), all.begin() + 30, std::byte{0}), 30);
  EXPECT_EQ(std::count(all.begin() + 70, all.end(), std::byte{0}), 30);
  // Nothing, from and to anywhere.
  backend->upload({}, {buffer.get(), 100, 0});
  backend->download({buffer.get(), 100, 0}, {});
  EXPECT_EQ(contents(*backend, whole(*buffer)), all);
}

// Sizes around what one thread copies alone.
TEST_F(CpuMemory, CopiesEverySize) {
  const std::uint64_t most = 200000;
  const auto from = backend->allocate(most + 3, MemoryKind::Host),
             to = backend->allocate(most + 10, MemoryKind::Device);
  const std::vector<std::byte> bytes = counted(most + 3), others = counted(most + 10, 99);
  backend->upload(bytes, whole(*from));
  for (const std::uint64_t size : {0, 1, 63, 16383, 16384, 16385, 49152, 49153, 200000}) {
    for (const bool beside : {false, true}) {
      backend->upload(others, whole(*to));
      std::vector<std::byte> want = others;
      std::copy_n(bytes.begin() + 3, size, want.begin() + 5);
      const Bytes source{from.get(), 3, size}, target{to.get(), 5, size};
      if (beside) {
        const Mark mark = backend->transfer(source, target);
        backend->wait_for_transfer(mark);
        EXPECT_TRUE(backend->transferred(mark));
      } else {
        backend->copy(source, target);
      }
      EXPECT_EQ(contents(*backend, whole(*to)), want) << size;
    }
  }
}

TEST_F(CpuMemory, ClearsItsRunOnly) {
  const auto buffer = backend->allocate(1000, MemoryKind::Device);
  std::vector<std::byte> bytes = counted(1000);
  backend->upload(bytes, whole(*buffer));
  backend->clear({buffer.get(), 100, 300});
  backend->clear({buffer.get(), 1000, 0});
  std::fill_n(bytes.begin() + 100, 300, std::byte{0});
  EXPECT_EQ(contents(*backend, whole(*buffer)), bytes);
}

// Pages that lie only partly in the run may stay or not, those outside stay; what went is zero.
TEST_F(CpuMemory, DiscardsWholePages) {
  constexpr std::uint64_t kSize = 64 << 10, kFrom = 16 << 10, kN = 32 << 10;
  const auto buffer = backend->allocate(kSize, MemoryKind::Device);
  const std::vector<std::byte> bytes(kSize, std::byte{7});
  backend->upload(bytes, whole(*buffer));
  const auto address = reinterpret_cast<std::uintptr_t>(buffer->address());
  const std::uint64_t to_page = (4096 - address % 4096) % 4096;  // the run begins at a page
  backend->discard({buffer.get(), kFrom + to_page, kN});
  const std::vector<std::byte> left = contents(*backend, whole(*buffer));
  const std::uint64_t begin = kFrom + to_page;
  for (std::uint64_t i = 0; i < kSize; ++i)
    ASSERT_EQ(left[i], std::byte{i >= begin && i < begin + kN ? std::uint8_t{0} : std::uint8_t{7}});
}

TEST_F(CpuMemory, OperationsAreDoneWhenTheyReturn) {
  const Mark mark = backend->mark();
  EXPECT_TRUE(backend->done(mark));
  backend->wait(mark);
  backend->wait_for_all();
}

// Only products with rounded activations want tiles, and only of weights that can have them.
TEST(CpuLayout, TilesWhereActivationsAreRounded) {
  for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
    const auto backend = make_backend({.n_threads = 1, .precision = precision});
    for (const WeightFormat& format : test::all_formats()) {
      const bool tiles =
          precision != Precision::Exact && (format.group > 0 || format.kind == WeightKind::Block);
      const WeightFormat product = backend->layout_for(format, WeightUse::Product);
      EXPECT_EQ(product.is_interleaved, tiles) << describe(format);
      EXPECT_EQ(product, arranged(format, tiles)) << describe(format);
      EXPECT_EQ(backend->layout_for(format, WeightUse::Rows), format) << describe(format);
      // It does not matter how it lies now.
      EXPECT_EQ(backend->layout_for(product, WeightUse::Rows), format) << describe(format);
      EXPECT_EQ(backend->layout_for(product, WeightUse::Product), product) << describe(format);
    }
  }
}

TEST_F(CpuMemory, LendsItsThreads) {
  std::vector<int> calls(1000);
  backend->parallel_for(1000, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(std::count(calls.begin(), calls.end(), 1), 1000);
  backend->parallel_for(0, [](std::int64_t) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace moeflux
