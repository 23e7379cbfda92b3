// Number ranges, against comparison of the numbers themselves.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/random.h"
#include "text/grammar/grammar_support.h"
#include "text/grammar/json_pieces.h"

namespace moeflux {
namespace {

using test::GrammarRun;

GrammarRun run_of(const DecimalRange& range) {
  Grammar grammar;
  const ExprId number = add_decimal_range(grammar, range);
  grammar.set_root(grammar.declare("number", number));
  return GrammarRun(grammar);
}

TEST(DecimalRange, EveryIntegerOfManyRanges) {
  test::Random random(7);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t low = random.integer(-250, 250), high = low + random.integer(0, 300);
    GrammarRun run =
        run_of({.low = DecimalBound{low}, .high = DecimalBound{high}, .integer = true});
    for (std::int64_t n = -600; n <= 600; ++n) {
      ASSERT_EQ(run.accepts(std::to_string(n)), low <= n && n <= high)
          << n << " " << low << " " << high;
    }
    EXPECT_FALSE(run.accepts("00"));
    EXPECT_FALSE(run.accepts("007"));
    EXPECT_FALSE(run.accepts(std::to_string(low) + "."));
  }
}

TEST(DecimalRange, IntegersWithFractionsAndOpenBounds) {
  GrammarRun run =
      run_of({.low = DecimalBound{-2.5}, .high = DecimalBound{7, true}, .integer = true});
  for (std::int64_t n = -10; n <= 10; ++n) {
    EXPECT_EQ(run.accepts(std::to_string(n)), n >= -2 && n < 7) << n;
  }
  GrammarRun above = run_of({.low = DecimalBound{1000}, .integer = true});
  EXPECT_TRUE(above.accepts("1000"));
  EXPECT_TRUE(above.accepts("999999999999999999"));
  EXPECT_FALSE(above.accepts("999"));
  EXPECT_FALSE(above.accepts("-1001"));
  GrammarRun below = run_of({.high = DecimalBound{-5}, .integer = true});
  EXPECT_TRUE(below.accepts("-5"));
  EXPECT_TRUE(below.accepts("-123456"));
  EXPECT_FALSE(below.accepts("-4"));
  EXPECT_FALSE(below.accepts("0"));
}

TEST(DecimalRange, NumbersOfManyRanges) {
  test::Random random(8);
  for (int round = 0; round < 200; ++round) {
    // Hundredths, so that the comparison is one of integers.
    const std::int64_t low = random.integer(-300, 300), high = low + random.integer(1, 400);
    const bool low_open = random.chance(0.5), high_open = random.chance(0.5);
    const auto bound = [](std::int64_t n, bool open) {
      return DecimalBound{Json::parse(fmt::format("{:.2f}", static_cast<double>(n) / 100)), open};
    };
    GrammarRun run =
        run_of({.low = bound(low, low_open), .high = bound(high, high_open), .max_fraction = 4});
    for (std::int64_t n = -800; n <= 800; ++n) {
      const bool inside = (low_open ? n > low : n >= low) && (high_open ? n < high : n <= high);
      const std::string text =
          fmt::format("{}{}.{:02}", n < 0 ? "-" : "", std::abs(n) / 100, std::abs(n) % 100);
      const bool trailing_zero_at_bound = n == high && n % 10 == 0;
      const bool trailing_zero_at_low = n == low && low < 0 && n % 10 == 0;
      if (trailing_zero_at_bound || trailing_zero_at_low || n == 0) continue;
      ASSERT_EQ(run.accepts(text), inside) << text << " in " << low << (low_open ? " open " : " ")
                                           << high << (high_open ? " open" : "");
    }
  }
}

TEST(DecimalRange, TheBoundsThemselves) {
  GrammarRun closed = run_of({.low = DecimalBound{0}, .high = DecimalBound{1}});
  for (const char* text : {"0", "1", "0.5", "0.000001", "0.999999"}) {
    EXPECT_TRUE(closed.accepts(text)) << text;
  }
  for (const char* text : {"1.1", "-0.1", "2", "1.000001", "-0", "0.", ".5", "1e0"}) {
    EXPECT_FALSE(closed.accepts(text)) << text;
  }
  GrammarRun open = run_of({.low = DecimalBound{0, true}, .high = DecimalBound{1, true}});
  for (const char* text : {"0.5", "0.000001", "0.999999", "0.10"}) {
    EXPECT_TRUE(open.accepts(text)) << text;
  }
  for (const char* text : {"0", "1", "0.0", "0.000000", "1.0"}) {
    EXPECT_FALSE(open.accepts(text)) << text;
  }
  GrammarRun small = run_of({.low = DecimalBound{1e-7}, .high = DecimalBound{1.5e-7}});
  EXPECT_TRUE(small.accepts("0.00000012"));
  EXPECT_FALSE(small.accepts("0.0000002"));
}

TEST(DecimalRange, NothingBetweenAndOutOfReach) {
  Grammar grammar;
  const ExprId none = add_decimal_range(
      grammar, {.low = DecimalBound{3, true}, .high = DecimalBound{4, true}, .integer = true});
  EXPECT_TRUE(grammar.expr(none).set.empty());
  GrammarRun all = run_of({.low = DecimalBound{-1e30}, .high = DecimalBound{1e30}});
  EXPECT_TRUE(all.accepts("-123456.5"));
  test::expect_error(Errc::Unsupported, {"outside"},
                     [&] { add_decimal_range(grammar, {.low = DecimalBound{1e30}}); });
}

}  // namespace
}  // namespace moeflux
