#include <bit>
#include <cstdint>
#include <limits>

#include "base/aligned_buffer.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

TEST(HugeBuffer, IsAlignedZeroedAndWritable) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, (std::size_t{2} << 20) + 5}) {
    const HugeBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    const std::size_t alignment = bytes < (std::size_t{2} << 20) ? 4096 : std::size_t{2} << 20;
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(buffer.data()) % alignment, 0u);
    EXPECT_EQ(buffer.bytes().front(), std::byte{0});
    EXPECT_EQ(buffer.bytes().back(), std::byte{0});
    buffer.bytes().back() = std::byte{7};
    EXPECT_EQ(buffer.data()[bytes - 1], std::byte{7});
  }
}

TEST(HugeBuffer, Moves) {
  HugeBuffer a(100);
  a.data()[3] = std::byte{9};
  HugeBuffer b = std::move(a);
  EXPECT_EQ(b.data()[3], std::byte{9});
  a = HugeBuffer(50);
  b = std::move(a);
  EXPECT_EQ(b.size(), 50u);
  EXPECT_EQ(HugeBuffer().data(), nullptr);
  EXPECT_EQ(HugeBuffer(0).size(), 0u);
}

TEST(HugeBuffer, SaysWhenThereIsNoMemory) {
  expect_error(Errc::OutOfMemory, {"memory"}, [] { HugeBuffer(std::size_t{1} << 60); });
  expect_error(Errc::OutOfMemory, {"memory"},
               [] { HugeBuffer{std::numeric_limits<std::size_t>::max()}; });
}

}  // namespace
}  // namespace moeflux::test
