#include "io/read_plan.h"

#include <bit>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

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
}  // namespace moeflux
