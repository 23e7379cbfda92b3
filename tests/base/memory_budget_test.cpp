#include "base/memory_budget.h"

#include <thread>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;

TEST(MemoryBudget, ReservationsAddUpAndComeBack) {
  MemoryBudget budget(1000);
  EXPECT_EQ(budget.available(), 1000u);
  {
    const auto a = budget.reserve("weights", 600);
    const auto b = budget.reserve("cache", 300);
    const auto c = budget.reserve("cache", 50);
    EXPECT_EQ(a.bytes(), 600u);
    EXPECT_EQ(budget.available(), 50u);
    EXPECT_EQ(budget.by_tag().at("weights"), 600u);
    EXPECT_EQ(budget.by_tag().at("cache"), 350u);
  }
  EXPECT_EQ(budget.available(), 1000u);
  EXPECT_EQ(budget.by_tag().at("cache"), 0u);
}

TEST(MemoryBudget, TheCeilingIsExact) {
  MemoryBudget budget(4096);
  const auto all = budget.reserve("all", 4096);
  EXPECT_EQ(budget.available(), 0u);
  EXPECT_NO_THROW(budget.reserve("nothing", 0));
  expect_error(Errc::OutOfMemory, {"one more", "1 B", "0 B", "4.0 KiB"},
               [&] { budget.reserve("one more", 1); });
  EXPECT_EQ(budget.by_tag().count("one more"), 0u);
}

TEST(MemoryBudget, AnAbsurdRequestCannotWrapAround) {
  MemoryBudget budget(1000);
  const auto some = budget.reserve("some", 999);
  expect_error(Errc::OutOfMemory, {"huge"}, [&] { budget.reserve("huge", UINT64_MAX); });
  EXPECT_EQ(budget.available(), 1u);
}

TEST(MemoryBudget, MovesCarryTheReservation) {
  MemoryBudget budget(100);
  auto a = budget.reserve("a", 40);
  auto b = std::move(a);
  EXPECT_EQ(a.bytes(), 0u);  // NOLINT(bugprone-use-after-move): what a moved-from one says
  EXPECT_EQ(b.bytes(), 40u);
  auto c = budget.reserve("c", 30);
  EXPECT_EQ(budget.available(), 30u);
  c = std::move(b);  // gives back its own 30 first
  EXPECT_EQ(c.bytes(), 40u);
  EXPECT_EQ(budget.available(), 60u);
  c = MemoryBudget::Reservation();
  EXPECT_EQ(budget.available(), 100u);
}

TEST(MemoryBudget, ThreadsShareIt) {
  MemoryBudget budget(64);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget] {
      for (int i = 0; i < 2000; ++i) const auto held = budget.reserve("t", 16);
    });
  }
  threads.clear();
  EXPECT_EQ(budget.available(), 64u);
}

TEST(FormatBytes, Units) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_needed_bytes(1023), "1023 B");
  EXPECT_EQ(format_needed_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_needed_bytes(1025), "1.1 KiB");
  EXPECT_EQ(format_needed_bytes((std::uint64_t{1} << 30) + 1), "1.1 GiB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(6ull << 30), "6.0 GiB");
  EXPECT_EQ(format_bytes(5ull << 40), "5.0 TiB");
  EXPECT_EQ(format_bytes(1ull << 54), "16384.0 TiB");
}

}  // namespace
}  // namespace moeflux
