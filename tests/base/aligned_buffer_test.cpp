#include "base/aligned_buffer.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

TEST(AlignedBuffer, IsAlignedAndZero) {
  constexpr unsigned kHugePage = 2u << 20;
  for (const std::size_t bytes : {1u, 63u, 64u, 4096u, 100000u, kHugePage, 2 * kHugePage - 7}) {
    const AlignedBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    EXPECT_EQ(address % (bytes >= kHugePage ? kHugePage : 64), 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
}

TEST(AlignedBuffer, EmptyHoldsNothing) {
  const AlignedBuffer none, zero(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_EQ(zero.size(), 0u);
}

TEST(AlignedBuffer, MovesKeepAddressAndContent) {
  AlignedBuffer a(64);
  a.floats()[3] = 1.5f;
  const std::byte* address = a.data();
  AlignedBuffer b(std::move(a));
  EXPECT_EQ(b.data(), address);
  EXPECT_EQ(b.floats()[3], 1.5f);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  AlignedBuffer c(128);
  c = std::move(b);
  EXPECT_EQ(c.data(), address);
  EXPECT_EQ(c.size(), 64u);
}

// Untouched pages cost nothing, so a buffer may be larger than the machine's memory.
TEST(AlignedBuffer, OnlyTouchedPagesAreUsed) {
  const AlignedBuffer buffer(std::size_t{8} << 30);
  buffer.floats()[0] = 1;
  buffer.floats()[(std::size_t{2} << 30) - 1] = 2;
  EXPECT_EQ(buffer.floats()[0] + buffer.floats()[(std::size_t{2} << 30) - 1], 3.0f);
}

TEST(AlignedBuffer, RefusesWhatNoMachineHas) {
  test::expect_error(Errc::OutOfMemory, {"9223372036854775807"},
                     [] { AlignedBuffer buffer(std::size_t{INT64_MAX}); });
}

}  // namespace
}  // namespace moeflux
