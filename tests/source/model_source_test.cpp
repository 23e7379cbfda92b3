#include "source/model_source.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::TempDir;

class ModelSourceTest : public testing::Test {
 protected:
  ModelSourceTest() { file_ = source_.add_file(File(dir_.write("w.bin", std::string(100, 'x')))); }

  TensorInfo tensor(std::vector<std::int64_t> shape, std::uint64_t offset, std::uint64_t bytes) {
    return {.shape = std::move(shape), .file = file_, .offset = offset, .bytes = bytes};
  }

  TempDir dir_;
  ModelSource source_{"model", ModelSource::Layout::Safetensors};
  int file_ = -1;
};

TEST_F(ModelSourceTest, FindsWhatWasAdded) {
  source_.add_tensor("a", tensor({3, 4}, 52, 48));
  ASSERT_NE(source_.find("a"), nullptr);
  EXPECT_EQ(source_.find("b"), nullptr);
  EXPECT_EQ(source_.find("a")->slice_stride, 16u);
  EXPECT_TRUE(source_.find("a")->contiguous());
  EXPECT_EQ(source_.find("a")->extent().offset, 52u);
}

TEST_F(ModelSourceTest, ScalarsAndEmptyTensors) {
  source_.add_tensor("scalar", tensor({}, 0, 4));
  source_.add_tensor("empty", tensor({0, 7}, 100, 0));
  EXPECT_EQ(source_.find("scalar")->slice_bytes(), 4u);
  EXPECT_TRUE(source_.find("empty")->contiguous());
}

TEST_F(ModelSourceTest, ReadsBytes) {
  const std::string text = "0123456789";
  const int file = source_.add_file(File(dir_.write("t.bin", text)));
  std::string out(4, '\0');
  source_.read({file, 3, 4}, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "3456");
  EXPECT_THROW(source_.read({file, 3, 5}, std::as_writable_bytes(std::span(out))),
               std::logic_error);
}

TEST_F(ModelSourceTest, RefusesBytesOutsideTheFile) {
  const auto add = [&](TensorInfo info) { source_.add_tensor("w", std::move(info)); };
  expect_error(Errc::BadInput, {"w.bin", "\"w\"", "48 bytes from byte 53", "only 100"}, [&] {
    add(tensor({3, 4}, 53, 48));
  });
  expect_error(Errc::BadInput, {"only 100"}, [&] { add(tensor({1}, 101, 4)); });
  expect_error(Errc::BadInput, {"only 100"}, [&] { add(tensor({1}, UINT64_MAX - 1, 4)); });
}

TEST_F(ModelSourceTest, RefusesBytesThatAreNotTheShapes) {
  expect_error(Errc::BadInput, {"w.bin", "\"w\"", "44 bytes", "F32 [3, 4] needs 48"}, [&] {
    source_.add_tensor("w", tensor({3, 4}, 0, 44));
  });
}

TEST_F(ModelSourceTest, RefusesImpossibleShapes) {
  const std::int64_t big = std::int64_t{1} << 33;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{-1, 4}, {big, big}, {0, big, big}, {INT64_MAX}, {0, INT64_MAX}}) {
    expect_error(Errc::BadInput, {"\"w\"", "impossible shape", shape_text(shape)},
                 [&] { source_.add_tensor("w", tensor(shape, 0, 0)); });
  }
}

TEST_F(ModelSourceTest, RefusesASecondTensorOfTheSameName) {
  source_.add_tensor("w", tensor({2}, 0, 8));
  expect_error(Errc::BadInput, {"\"w\"", "already"},
               [&] { source_.add_tensor("w", tensor({2}, 8, 8)); });
}

TEST_F(ModelSourceTest, InterleavedSlicesMustFit) {
  TensorInfo info = tensor({3, 2}, 20, 24);  // slices of 8 bytes at 20, 56, 92
  info.slice_stride = 36;
  source_.add_tensor("fits", info);
  EXPECT_FALSE(source_.find("fits")->contiguous());
  EXPECT_THROW(source_.find("fits")->extent(), std::logic_error);
  info.slice_stride = 37;
  expect_error(Errc::BadInput, {"only 100"}, [&] { source_.add_tensor("w", info); });
  info.slice_stride = UINT64_MAX / 2 + 1;
  expect_error(Errc::BadInput, {"only 100"}, [&] { source_.add_tensor("w", info); });
}

TEST(ModelSource, Names) {
  EXPECT_EQ(layout_name(ModelSource::Layout::Safetensors), "safetensors");
  EXPECT_EQ(layout_name(ModelSource::Layout::Mlx), "mlx");
  EXPECT_EQ(layout_name(ModelSource::Layout::FlashMoe), "flash-moe");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{}), "[]");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{2, 3}), "[2, 3]");
}

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
