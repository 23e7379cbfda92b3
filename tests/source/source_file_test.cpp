#include "source/source_file.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;

struct Piece {
  int part;
  std::uint64_t offset, bytes;
  friend bool operator==(const Piece&, const Piece&) = default;
};

std::vector<Piece> pieces(const SourceFile& file, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<Piece> runs;
  file.for_each_piece(offset, bytes, [&](int part, std::uint64_t at, std::uint64_t n) {
    runs.push_back({part, at, n});
  });
  return runs;
}

class SourceFileTest : public testing::Test {
 protected:
  // Records of 6 bytes: two in a, three in b, one in c.
  SourceFile striped() {
    std::vector<SourceFile::Stripe> stripes;
    stripes.push_back({File(dir_.write("a", "01678c")), 2});
    stripes.push_back({File(dir_.write("b", "2349abdef")), 3});
    stripes.push_back({File(dir_.write("c", "5xy")), 1});
    return SourceFile("logical", 3, std::move(stripes));
  }
  std::string read(const SourceFile& file, std::uint64_t offset, std::size_t bytes) {
    std::string out(bytes, '?');
    file.read(offset, std::as_writable_bytes(std::span(out)));
    return out;
  }

  test::TempDir dir_;
};

TEST_F(SourceFileTest, Plain) {
  const SourceFile file(File(dir_.write("f", "0123456789")));
  EXPECT_EQ(file.path(), dir_.file("f"));
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(file.n_parts(), 1);
  EXPECT_FALSE(file.striped());
  EXPECT_EQ(read(file, 3, 4), "3456");
  EXPECT_EQ(pieces(file, 3, 4), (std::vector<Piece>{{0, 3, 4}}));
  EXPECT_TRUE(pieces(file, 3, 0).empty());
}

TEST_F(SourceFileTest, StripedReadsAsOne) {
  const SourceFile file = striped();
  EXPECT_EQ(file.size(), 18u);
  EXPECT_EQ(file.n_parts(), 3);
  EXPECT_EQ(file.part(1).path(), dir_.file("b"));
  const std::string all = read(file, 0, 18);
  EXPECT_EQ(all.substr(0, 6), "012345");
  EXPECT_EQ(all.substr(6, 6), "679abx");
  for (std::uint64_t at = 0; at < 18; ++at) {
    for (std::size_t n = 0; at + n <= 18; ++n) EXPECT_EQ(read(file, at, n), all.substr(at, n));
  }
}

TEST_F(SourceFileTest, PiecesOfARecord) {
  const SourceFile file = striped();
  EXPECT_EQ(pieces(file, 6, 6), (std::vector<Piece>{{0, 2, 2}, {1, 3, 3}, {2, 1, 1}}));
  EXPECT_EQ(pieces(file, 1, 2), (std::vector<Piece>{{0, 1, 1}, {1, 0, 1}}));
  EXPECT_EQ(pieces(file, 16, 2), (std::vector<Piece>{{1, 8, 1}, {2, 2, 1}}));
}

TEST_F(SourceFileTest, StripesOfTheWrongSize) {
  std::vector<SourceFile::Stripe> stripes;
  stripes.push_back({File(dir_.write("short", "0123")), 2});
  expect_error(Errc::BadInput, {"short", "4 bytes", "3 records of 2"},
               [&] { SourceFile("logical", 3, std::move(stripes)); });
}

}  // namespace
}  // namespace moeflux
