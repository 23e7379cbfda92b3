#include "server/http/body_price.h"

#include <gtest/gtest.h>
#include <malloc.h>

namespace moeflux::test {
namespace {

TEST(BodyPriceTest, CountsValuesAndText) {
  EXPECT_EQ(body_price("42"), kPriceOfValue);
  EXPECT_EQ(body_price(R"([[],[],[]])"), 7 * kPriceOfValue);
  EXPECT_EQ(body_price(R"({"ab":"c"})"), 2 * kPriceOfValue + 3 * kPriceOfTextByte);
  EXPECT_EQ(body_price(R"({"[,{":"\",["})"), 2 * kPriceOfValue + 7 * kPriceOfTextByte);
  EXPECT_EQ(body_price(R"("no end)"), kPriceOfValue + 6 * kPriceOfTextByte);
  EXPECT_EQ(body_price(R"("no end\)"), kPriceOfValue + 7 * kPriceOfTextByte);
  EXPECT_EQ(body_price(""), kPriceOfValue);
}

std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// Bytes that the allocator has given out.
std::size_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(BodyPriceTest, IsMoreThanWhatIsParsed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have an allocator of their own";
#endif
  for (const std::string& item :
       {std::string("[]"), std::string("{}"), std::string("1"), std::string("\"\""),
        std::string("\"a text longer than a short one\""), std::string("[1]"),
        std::string("[1,2,3,4,5]"), std::string(R"({"a":1})"), std::string(R"({"a":[],"b":{}})"),
        repeated("[", 200) + repeated("]", 200),
        repeated(R"({"a":)", 200) + "1" + repeated("}", 200)}) {
    const std::string text =
        "[" + repeated(item + ",", 20'000 / static_cast<int>(item.size())) + item + "]";
    const std::size_t before = allocated();
    const Json parsed = parse_json(text, "test");
    const std::size_t after = allocated();
    EXPECT_LT(after - before, body_price(text) / 4) << item.substr(0, 40);
    EXPECT_LT(after - before, 2 * json_bytes(parsed)) << item.substr(0, 40);
  }
}

}  // namespace
}  // namespace moeflux::test
