#include "text/replies/stop_strings.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"

namespace moeflux {
namespace {

struct Result {
  std::string text;
  std::optional<std::size_t> stopped_by;
};

Result run(StopMatcher matcher, const std::vector<std::string>& fragments) {
  Result result;
  for (const std::string& fragment : fragments) {
    auto output = matcher.feed(fragment);
    result.text += output.text;
    if (output.stopped_by) result.stopped_by = output.stopped_by;
  }
  result.text += matcher.finish();
  return result;
}

TEST(StopMatcher, WithoutStopsEverythingPassesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.feed("hello").text, "hello");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, HoldsBackAPrefixAndReleasesItWhenItIsNone) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.feed("the E").text, "the ");
  EXPECT_EQ(matcher.feed("N").text, "");
  EXPECT_EQ(matcher.feed("x").text, "ENx");
  EXPECT_EQ(matcher.feed("EN").text, "");
  EXPECT_EQ(matcher.finish(), "EN");
}

TEST(StopMatcher, StopsAcrossFragmentsAndSwallowsTheRest) {
  StopMatcher matcher({"\n\n", "END"});
  EXPECT_EQ(matcher.feed("abc E").text, "abc ");
  EXPECT_EQ(matcher.feed("N").text, "");
  const auto output = matcher.feed("D and more");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.stopped_by, 1u);
  EXPECT_EQ(matcher.feed("further").text, "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, RestartsInsideOfAPartialMatch) {
  EXPECT_EQ(run(StopMatcher({"aab"}), {"a", "a", "a", "b", "c"}).text, "a");
  EXPECT_EQ(run(StopMatcher({"abac"}), {"ababac"}).text, "ab");
}

TEST(StopMatcher, TheFirstToCompleteWinsAndThenTheLongest) {
  const Result first = run(StopMatcher({"abcd", "bc"}), {"xabcd"});
  EXPECT_EQ(first.text, "xa");
  EXPECT_EQ(first.stopped_by, 1u);
  const Result longest = run(StopMatcher({"c", "abc"}), {"xabcd"});
  EXPECT_EQ(longest.text, "x");
  EXPECT_EQ(longest.stopped_by, 1u);
}

TEST(StopMatcher, RefusesEmptyAndInvalidStops) {
  EXPECT_THROW(StopMatcher({"a", ""}), Error);
  EXPECT_THROW(StopMatcher({"\xC3"}), Error);
}

// However a text is cut, the result is that of the whole text, and nothing shown is ever taken
// back.
TEST(StopMatcher, DoesNotDependOnFragments) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](std::size_t max) {
      std::string out;
      for (std::size_t n = 1 + random() % max; n > 0; --n) out += "ab"[random() % 2];
      return out;
    };
    std::vector<std::string> stops;
    for (std::size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(word(5));
    const std::string text = word(30);
    std::vector<std::string> fragments;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + random() % 4;
      fragments.push_back(text.substr(at, n));
      at += n;
    }
    const Result whole = run(StopMatcher(stops), {text});
    const Result cut = run(StopMatcher(stops), fragments);
    ASSERT_EQ(whole.text, cut.text);
    ASSERT_EQ(whole.stopped_by, cut.stopped_by);
    for (const std::string& stop : stops) ASSERT_EQ(whole.text.find(stop), std::string::npos);
    ASSERT_EQ(text.rfind(whole.text, 0), 0u);
    ASSERT_EQ(whole.stopped_by.has_value(), whole.text != text);
  }
}

}  // namespace
}  // namespace moeflux
