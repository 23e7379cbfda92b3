// Transfer against a kernel made of memory, which enforces the rules of direct I/O for alignments
// that the disk of this machine may not have, and answers with short reads and errors.
#include "io/transfer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/aligned_buffer.h"
#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

class MemoryKernel {
 public:
  MemoryKernel(std::string content, FileAlignment alignment)
      : content_(std::move(content)), alignment_(alignment) {}

  std::int64_t read(const KernelRead& read, std::uint64_t at_most) const {
    if (read.direct && !is_aligned(read)) return -EINVAL;
    std::uint64_t at = read.offset;
    std::uint64_t left = std::min<std::uint64_t>(at_most, read.bytes());
    for (int i = 0; i < read.n_parts; ++i) {
      const iovec& part = read.parts[static_cast<std::size_t>(i)];
      const std::uint64_t available = at < content_.size() ? content_.size() - at : 0;
      const std::uint64_t n = std::min({left, available, std::uint64_t{part.iov_len}});
      if (n > 0) std::memcpy(part.iov_base, content_.data() + at, n);
      at += n;
      left -= n;
      if (n < part.iov_len) break;
    }
    return static_cast<std::int64_t>(at - read.offset);
  }

  const std::string& content() const { return content_; }

 private:
  bool is_aligned(const KernelRead& read) const {
    bool aligned = read.offset % alignment_.offset == 0;
    for (int i = 0; i < read.n_parts; ++i) {
      const iovec& part = read.parts[static_cast<std::size_t>(i)];
      aligned = aligned && part.iov_len > 0 && part.iov_len % alignment_.offset == 0 &&
                std::bit_cast<std::uintptr_t>(part.iov_base) % alignment_.memory == 0;
    }
    return aligned;
  }

  std::string content_;
  FileAlignment alignment_;
};

class TransferTest : public testing::TestWithParam<FileAlignment> {
 protected:
  static constexpr PlanLimits kLimits{.bounce_bytes = 16384, .piece_bytes = 65536};

  // Carries all pieces of a read; `at_most` is asked for the length of each answer. Returns the
  // first error.
  template <class AtMost>
  int carry(std::uint64_t offset, std::span<std::byte> out, AtMost at_most) {
    int error = 0;
    for_each_piece({0, offset, out, 0}, GetParam(), kLimits, [&](const Piece& piece) {
      Transfer transfer;
      transfer.start(piece, GetParam(), {edges_.data(), edges_.size()},
                     {bounce_.data(), bounce_.size()});
      while (!transfer.advance(kernel_.read(transfer.read(), at_most()), 0, stats_)) {
      }
      if (error == 0) error = transfer.error();
    });
    return error;
  }

  MemoryKernel kernel_{random_bytes(200003, 1), GetParam()};
  AlignedBuffer edges_{2 * 4096};
  AlignedBuffer bounce_{16384};
  ReaderStats stats_;
};
INSTANTIATE_TEST_SUITE_P(Alignments, TransferTest,
                         testing::Values(FileAlignment{1, 1}, FileAlignment{512, 512},
                                         FileAlignment{512, 4}, FileAlignment{4096, 512},
                                         FileAlignment{4096, 4096}));

TEST_P(TransferTest, AlwaysAsksForAlignedReadsAndGetsEveryByteRight) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = 1 + random() % (random() % 2 == 0 ? 300 : 60000);
    const std::uint64_t offset = random() % (200003 - bytes + 1);
    std::vector<std::byte> memory(bytes + 4096);
    const std::span<std::byte> out{memory.data() + random() % 4096, bytes};
    const bool cut = i % 2 == 1;
    const int error = carry(offset, out, [&]() -> std::uint64_t {
      return cut ? (1 + random() % 40) * GetParam().offset : 1 << 30;
    });
    ASSERT_EQ(error, 0);
    ASSERT_EQ(std::memcmp(out.data(), kernel_.content().data() + offset, bytes), 0)
        << "offset " << offset << " bytes " << bytes;
  }
  EXPECT_EQ(stats_.retries, 0u);
  EXPECT_EQ(stats_.fallbacks, 0u) << "an unaligned read was asked for";
}

TEST_P(TransferTest, ReadsCutInsideABlockAreFinishedByteByByte) {
  std::mt19937_64 random(10);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t bytes = 1 + random() % 60000;
    const std::uint64_t offset = random() % (200003 - bytes + 1);
    std::vector<std::byte> memory(bytes);
    const int error = carry(offset, memory, [&] { return 1 + random() % 9999; });
    ASSERT_EQ(error, 0);
    ASSERT_EQ(std::memcmp(memory.data(), kernel_.content().data() + offset, bytes), 0);
  }
}

TEST_P(TransferTest, TheEndOfTheFileIsAnError) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t offset = 150000 + random() % 60000;
    const std::size_t missing = 1 + random() % 9000;
    const std::size_t bytes = missing + (offset < 200003 ? 200003 - offset : 0);
    std::vector<std::byte> memory(bytes);
    ASSERT_EQ(carry(offset, memory, [] { return std::uint64_t{1} << 30; }), kEndOfFile);
  }
}

}  // namespace
}  // namespace moeflux::test
