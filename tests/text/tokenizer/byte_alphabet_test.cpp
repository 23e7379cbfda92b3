#include "text/tokenizer/byte_alphabet.h"

#include <set>

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace moeflux {
namespace {

TEST(ByteAlphabet, WritesKnownBytes) {
  EXPECT_EQ(bytes_to_visible("Hello"), "Hello");
  EXPECT_EQ(bytes_to_visible(" "), "\u0120");
  EXPECT_EQ(bytes_to_visible("\n"), "\u010A");
  EXPECT_EQ(bytes_to_visible("\t"), "\u0109");
  EXPECT_EQ(bytes_to_visible(std::string(1, '\0')), "\u0100");
  EXPECT_EQ(bytes_to_visible("\x7F"), "\u0121");
  EXPECT_EQ(bytes_to_visible("\xAD"), "\u0143");  // the last of the 68 stand-ins
  EXPECT_EQ(bytes_to_visible("\xE9"), "\u00E9");
}

TEST(ByteAlphabet, IsABijectionOfBytesAndVisibleCharacters) {
  std::set<std::string> seen;
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    const std::string visible = bytes_to_visible(byte);
    EXPECT_TRUE(seen.insert(visible).second) << b;
    EXPECT_EQ(visible_to_bytes(visible), byte);
    EXPECT_GT(decode_utf8(visible, 0).code_point, U' ');
  }
}

TEST(ByteAlphabet, RefusesCharactersOutsideOfIt) {
  EXPECT_EQ(visible_to_bytes("a b"), std::nullopt);     // a real space
  EXPECT_EQ(visible_to_bytes("\u0144"), std::nullopt);  // just after the last stand-in
  EXPECT_EQ(visible_to_bytes("\u00AD"), std::nullopt);  // a byte that has a stand-in
  EXPECT_EQ(visible_to_bytes("\u4E2D"), std::nullopt);
  EXPECT_EQ(visible_to_bytes("\xFF"), std::nullopt);  // not UTF-8
  EXPECT_EQ(visible_to_bytes(""), "");
}

}  // namespace
}  // namespace moeflux
