// Transfer against a kernel made of memory, which enforces the rules of direct I/O for alignments
// that the disk of this machine may not have, and answers with short reads and errors.
#include "io/transfer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

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

constexpr PlanLimits kLimits{.bounce_bytes = 16384, .piece_bytes = 1 << 20};

ReadOp make_op(std::uint64_t offset, std::size_t bytes, std::uintptr_t address) {
  return {
      .file = 3, .offset = offset, .out = {std::bit_cast<std::byte*>(address), bytes}, .tag = 0};
}

TEST(ReadPlan, ChoosesTheRoute) {
  const FileAlignment sector{512, 512};
  EXPECT_EQ(choose_route(make_op(7, 100000, 13), {1, 1}), Route::Buffered);
  EXPECT_EQ(choose_route(make_op(0, 4096, 0x10000), sector), Route::Direct);
  EXPECT_EQ(choose_route(make_op(0, 4096, 0x10001), sector), Route::Bounced);
  EXPECT_EQ(choose_route(make_op(9, 4096, 0x10009), sector), Route::Direct);  // they agree
  EXPECT_EQ(choose_route(make_op(9, 4096, 0x10008), sector), Route::Bounced);
  EXPECT_EQ(choose_route(make_op(9, 1015, 0x10008), sector),
            Route::Direct);  // two blocks: edges only
  // Disks that can write to any multiple of 4 take almost every read in place.
  EXPECT_EQ(choose_route(make_op(8, 4096, 0x10040), {512, 4}), Route::Direct);
  EXPECT_EQ(choose_route(make_op(9, 4096, 0x10040), {512, 4}), Route::Bounced);
}

TEST(ReadPlan, RefusesRangesNoFileCanHave) {
  EXPECT_FALSE(out_of_range(make_op(0, 0, 0)));
  EXPECT_FALSE(out_of_range(make_op(std::uint64_t{1} << 62, 4096, 0)));
  EXPECT_TRUE(out_of_range(make_op(std::uint64_t{1} << 63, 1, 0)));
  EXPECT_TRUE(out_of_range(make_op(std::numeric_limits<std::int64_t>::max(), 1, 0)));
  EXPECT_TRUE(out_of_range(make_op(std::numeric_limits<std::uint64_t>::max(), 2, 0)));
}

TEST(ReadPlan, EmptyOpsHaveNoPieces) {
  for_each_piece(make_op(100, 0, 0x10000), {512, 512}, kLimits, [](const Piece&) { FAIL(); });
}

TEST(ReadPlan, PiecesCoverTheOpAndCutAtBlocks) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    const FileAlignment alignment = std::vector<FileAlignment>{
        {1, 1}, {512, 512}, {512, 4}, {4096, 4096}, {4096, 512}}[random() % 5];
    const ReadOp op = make_op(random() % 100000, random() % 3000000, 0x100000 + random() % 5000);
    std::uint64_t at = op.offset;
    for_each_piece(op, alignment, kLimits, [&](const Piece& piece) {
      EXPECT_EQ(piece.file, 3);
      EXPECT_EQ(piece.offset, at);
      EXPECT_EQ(piece.out, op.out.data() + (at - op.offset));
      EXPECT_GT(piece.bytes, 0u);
      at += piece.bytes;
      EXPECT_TRUE(at == op.offset + op.out.size() || at % alignment.offset == 0);
      const std::uint64_t span =
          round_up(at, alignment.offset) - round_down(piece.offset, alignment.offset);
      EXPECT_LE(span, piece.route == Route::Bounced ? kLimits.bounce_bytes : kLimits.piece_bytes);
      if (piece.route == Route::Direct && !fits_edges(op.offset, op.out.size(), alignment)) {
        EXPECT_TRUE(lands_in_place(piece.offset, piece.out, alignment));
      }
    });
    EXPECT_EQ(at, op.offset + op.out.size());
  }
}

}  // namespace
}  // namespace moeflux::test
