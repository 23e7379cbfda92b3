#include "source/checksum.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

// Known values of XXH3-64 with seed 0: containers depend on them for ever.
TEST(Checksum, KnownValues) {
  EXPECT_EQ(checksum(""), 0x2D06800538D394C2u);
  EXPECT_EQ(checksum_text(checksum("")), "2d06800538d394c2");
  EXPECT_EQ(checksum_text(checksum(std::string(4096, '\0'))),
            checksum_text(checksum(std::string(4096, '\0'))));
  EXPECT_NE(checksum(std::string(4096, '\0')), checksum(std::string(4095, '\0')));
}

TEST(Checksum, PiecesMakeTheSame) {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += static_cast<char>(i * 31 % 251);
  for (const std::size_t step : {1u, 7u, 255u, 4096u, 20000u}) {
    ChecksumStream stream;
    for (std::size_t at = 0; at < text.size(); at += step)
      stream.add(std::string_view(text).substr(at, step));
    EXPECT_EQ(stream.value(), checksum(text)) << step;
  }
  EXPECT_EQ(ChecksumStream().value(), checksum(""));
}

TEST(Checksum, Text) {
  std::uint64_t value = 0;
  EXPECT_TRUE(parse_checksum("00000000deadbeef", value));
  EXPECT_EQ(value, 0xDEADBEEFu);
  EXPECT_TRUE(parse_checksum(checksum_text(UINT64_MAX), value));
  EXPECT_EQ(value, UINT64_MAX);
  for (const char* bad : {"", "deadbeef", "00000000DEADBEEF", "00000000deadbeeg",
                          " 0000000deadbeef", "000000000deadbeef", "+0000000deadbeef"}) {
    EXPECT_FALSE(parse_checksum(bad, value)) << bad;
  }
}

}  // namespace
}  // namespace moeflux
