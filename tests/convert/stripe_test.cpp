// Containers whose records are split over several directories.
#include <filesystem>

#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/directory_bytes.h"
#include "convert/same_model.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::fixture_path;

class StripeTest : public testing::Test {
 protected:
  ConvertOptions over(std::vector<StripeShare> shares) {
    ConvertOptions options;
    options.stripes = std::move(shares);
    return options;
  }

  const std::string from_ = fixture_path("qwen-fp8");  // records of 17 pages
  test::TempDir dir_;
  std::string to_ = dir_.file("out");
};

TEST_F(StripeTest, ThreeDirectoriesReadBackIdentical) {
  convert(from_, to_, over({{dir_.file("a"), 2}, {to_ + "/b", 1}, {to_, 1}}));
  const auto source = open_source(from_), container = open_source(to_);
  test::expect_same_model(*source, *container);
  test::expect_same_bits(test::some_logits(from_), test::some_logits(to_));
  const Json files = read_json_file(to_ + "/moeflux.json")["files"];
  const Json stripes = files[1]["stripes"];
  ASSERT_EQ(stripes.size(), 3u);
  EXPECT_EQ(stripes[0]["directory"], fs::canonical(dir_.file("a")).string());
  EXPECT_EQ(stripes[1]["directory"], "b");
  EXPECT_EQ(stripes[2]["directory"], ".");
  EXPECT_EQ(fs::file_size(dir_.file("a/experts-000.bin")),
            4 * stripes[0]["bytes_per_record"].get<std::uint64_t>());
  EXPECT_TRUE(fs::exists(to_ + "/b/experts-001.bin"));
  EXPECT_FALSE(fs::exists(dir_.file("a/dense.bin")));
}

TEST_F(StripeTest, StripesDoNotChangeTheFingerprint) {
  convert(from_, to_, over({{dir_.file("a"), 1}, {dir_.file("b"), 1}}));
  convert(from_, dir_.file("plain"), {});
  EXPECT_EQ(open_source(to_)->fingerprint(), open_source(dir_.file("plain"))->fingerprint());
  EXPECT_EQ(read_text_file(to_ + "/checksums.bin"),
            read_text_file(dir_.file("plain/checksums.bin")));
  // And back again.
  convert(to_, dir_.file("again"), {});
  EXPECT_EQ(test::directory_bytes(dir_.file("again")), test::directory_bytes(dir_.file("plain")));
}

TEST_F(StripeTest, PiecesOnDiskMakeUpARecord) {
  convert(from_, to_, over({{dir_.file("a"), 2}, {dir_.file("b"), 1}, {dir_.file("c"), 1}}));
  const auto container = open_source(to_);
  for (const Record& record : container->records()) {
    std::vector<std::byte> whole(record.extent.bytes), pieces;
    container->read(record.extent, whole);
    const std::vector<DiskPiece> located = container->locate(record.extent);
    const bool expert = record.name.find(" expert ") != std::string::npos;
    EXPECT_EQ(located.size(), expert ? 3u : 1u);
    for (const DiskPiece& piece : located) {
      EXPECT_EQ(piece.offset % 4096, 0u);
      std::vector<std::byte> part(piece.bytes);
      container->disk_file(piece.file).read(piece.offset, part);
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    EXPECT_EQ(pieces, whole) << record.name;
  }
  EXPECT_EQ(container->n_files(), 3);
  EXPECT_EQ(container->n_disk_files(), 7);
}

TEST_F(StripeTest, MeasuredSharesAreKeptOverAResume) {
  ConvertOptions options = over({{dir_.file("a"), 0}, {dir_.file("b"), 0}});
  options.checkpoint_bytes = 1;
  options.progress = [](const ConvertProgress& p) {
    if (p.bytes_done > p.bytes_total / 2) fail(Errc::Cancelled, "stop");
  };
  EXPECT_THROW(convert(from_, to_, options), Error);
  options.progress = {};
  const ConvertReport report = convert(from_, to_, options);
  EXPECT_GT(report.resumed_bytes, 0u);
  EXPECT_GT(report.stripes[0].weight, 0);
  test::expect_same_model(*open_source(from_), *open_source(to_));
}

TEST_F(StripeTest, AMissingOrWrongStripeIsNamed) {
  convert(from_, to_, over({{dir_.file("a"), 1}, {dir_.file("b"), 1}}));
  fs::rename(dir_.file("b"), dir_.file("unmounted"));
  expect_error(Errc::NotFound, {dir_.file("b") + "/experts-000.bin"}, [&] { open_source(to_); });
  fs::rename(dir_.file("unmounted"), dir_.file("b"));
  fs::resize_file(dir_.file("a/experts-001.bin"), 4096);
  expect_error(Errc::BadInput, {"a/experts-001.bin", "4096 bytes", "records"},
               [&] { open_source(to_); });
}

TEST_F(StripeTest, AMovedContainerFindsTheStripesInsideIt) {
  convert(from_, to_, over({{to_ + "/x", 1}, {to_ + "/y", 1}}));
  fs::rename(to_, dir_.file("moved"));
  test::expect_same_model(*open_source(from_), *open_source(dir_.file("moved")));
}

}  // namespace
}  // namespace moeflux
