#include "text/replies/reply_json.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/utf8.h"
#include "support/random.h"

namespace moeflux {
namespace {

// The value at the beginning of a text: what was taken of it, or "bad".
std::string scan(std::string_view text) {
  JsonScanner scanner;
  std::string out;
  for (const char c : text) {
    const JsonScanner::Step step = scanner.feed(c, out);
    if (step == JsonScanner::Step::Bad) return "bad";
    if (step != JsonScanner::Step::More) return out;
  }
  return "more";
}

TEST(ReplyJson, TakesOneValue) {
  EXPECT_EQ(scan("{\"a\": [1, {}], \"b\": \"}\"} and more"), "{\"a\": [1, {}], \"b\": \"}\"}");
  EXPECT_EQ(scan(" [true,false , null]x"), " [true,false , null]");
  EXPECT_EQ(scan("-12.5e+3,"), "-12.5e+3");
  EXPECT_EQ(scan("\"\\u00e4\\n\\\"\"!"), "\"\\u00e4\\n\\\"\"");
  EXPECT_EQ(scan("{\"a\": 1"), "more");
}

TEST(ReplyJson, EscapesControlCharactersInStrings) {
  EXPECT_EQ(scan("\"a\nb\tc\x02\""), "\"a\\nb\\tc\\u0002\"");
}

TEST(ReplyJson, RefusesWhatIsNoJson) {
  for (const char* text : {"}", "{a: 1}", "{\"a\" 1}", "[1,]", "{\"a\": 1,}", "[1 2]", "nul!", "-x",
                           "1.x", "1e,", "\"\\x\"", "\"\\u12g4\"", "'a'", "True", "[01]"}) {
    EXPECT_EQ(scan(text), "bad") << text;
  }
  EXPECT_EQ(scan(std::string(257, '[')), "bad");
  EXPECT_EQ(scan(std::string(256, '[') + std::string(256, ']')).size(), 512u);
}

Json random_json(test::Random& random, int depth) {
  switch (random.integer(0, depth > 0 ? 6 : 4)) {
    case 0:
      return nullptr;
    case 1:
      return random.chance(0.5);
    case 2:
      return random.integer(-1000, 1000);
    case 3:
      return random.uniform() * 1e9;
    case 4:
      return std::string("s\"\\\n\xC3\xA9").substr(0, random.chance(0.5) ? 4 : 6);
    case 5: {
      Json list = Json::array();
      for (auto n = random.integer(0, 3); n > 0; --n)
        list.push_back(random_json(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (auto n = random.integer(0, 3); n > 0; --n) {
        object["k" + std::to_string(n)] = random_json(random, depth - 1);
      }
      return object;
    }
  }
}

// Damaged documents: the scanner and a parser agree about what is JSON.
TEST(ReplyJson, AgreesWithAParser) {
  test::Random random(3);
  constexpr std::string_view kBytes = "{}[]\",:0123456789.eE+-truefalsn\\ u";
  for (int round = 0; round < 5000; ++round) {
    std::string text = random_json(random, 3).dump(random.chance(0.5) ? 2 : -1);
    for (auto n = random.integer(0, 2); n > 0; --n) {
      const auto at =
          static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(text.size()) - 1));
      text[at] = kBytes[static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(kBytes.size()) - 1))];
    }
    JsonScanner scanner;
    std::string out;
    std::size_t n = 0;
    JsonScanner::Step step = JsonScanner::Step::More;
    while (n <= text.size() && step == JsonScanner::Step::More) {
      step = scanner.feed(n < text.size() ? text[n] : ' ', out);
      ++n;
    }
    const bool done = step == JsonScanner::Step::Done || step == JsonScanner::Step::DoneBefore;
    const std::size_t n_taken = step == JsonScanner::Step::DoneBefore ? n - 1 : n;
    // Characters and the size of numbers are not its business.
    if (text.find("\\u") != std::string::npos || text.find_first_of("eE") != std::string::npos ||
        find_invalid_utf8(text) != std::string::npos) {
      continue;
    }
    if (!done) {
      EXPECT_FALSE(Json::accept(text)) << text;
      continue;
    }
    const std::string rest = text.substr(std::min(n_taken, text.size()));
    EXPECT_EQ(rest.find_first_not_of(" \n") == std::string::npos, Json::accept(out + rest)) << text;
  }
}

TEST(ReplyJson, WritesStrings) {
  EXPECT_EQ(json_string("a\"\\\n\r\t\x01\xC3\xA9/"), "\"a\\\"\\\\\\n\\r\\t\\u0001\xC3\xA9/\"");
}

}  // namespace
}  // namespace moeflux
