#include "convert/progress_log.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/paths.h"

namespace moeflux {
namespace {

class ProgressLogTest : public testing::Test {
 protected:
  ProgressLogTest() {
    ProgressLog log(path_, Json{{"identity", "abc"}});
    log.append(std::vector<DonePiece>{{-1, 7, 0x1234, ""}, {2, 0, UINT64_MAX, "a note"}});
    log.append(std::vector<DonePiece>{{0, 5, 1, ""}});
    text_ = read_text_file(path_);
  }

  test::TempDir dir_;
  std::string path_ = dir_.file("convert.progress");
  std::string text_;
};

TEST_F(ProgressLogTest, ReadsWhatItWrote) {
  const auto found = read_progress(path_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->header["identity"], "abc");
  ASSERT_EQ(found->pieces.size(), 3u);
  EXPECT_EQ(found->pieces[0].bank, -1);
  EXPECT_EQ(found->pieces[0].index, 7);
  EXPECT_EQ(found->pieces[0].checksum, 0x1234u);
  EXPECT_EQ(found->pieces[1].checksum, UINT64_MAX);
  EXPECT_EQ(found->pieces[1].note, "a note");
  EXPECT_EQ(found->bytes, text_.size());
}

TEST_F(ProgressLogTest, ANewLogReplacesAnOldOne) {
  ProgressLog log(path_, Json{{"identity", "second"}});
  log.append(std::vector<DonePiece>{{1, 2, 3, "only one"}});
  const auto found = read_progress(path_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->header["identity"], "second");
  ASSERT_EQ(found->pieces.size(), 1u);
  EXPECT_EQ(found->pieces[0].note, "only one");
  EXPECT_EQ(found->bytes, read_text_file(path_).size());
}

TEST_F(ProgressLogTest, GoesOnBehindWholeLines) {
  // However a kill tears the file, the whole lines count and the rest is overwritten.
  const std::size_t header = text_.find('\n') + 1;
  for (std::size_t size = 0; size <= text_.size(); ++size) {
    dir_.write("convert.progress", text_.substr(0, size));
    const auto found = read_progress(path_);
    ASSERT_EQ(found.has_value(), size >= header) << size;
    if (!found) continue;
    const auto lines =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(size), '\n') - 1;
    EXPECT_EQ(std::ssize(found->pieces), lines);
    ProgressLog(path_, found->bytes).append(std::vector<DonePiece>{{9, 9, 9, "last"}});
    const auto again = read_progress(path_);
    ASSERT_EQ(again->pieces.size(), found->pieces.size() + 1);
    EXPECT_EQ(again->pieces.back().note, "last");
  }
}

TEST_F(ProgressLogTest, StopsAtWhatIsNoLine) {
  for (const char* bad : {"x 1 0000000000000001 \n", "-2 1 0000000000000001 \n",
                          "1 -1 0000000000000001 \n", "1 1 000000000000000g \n", "1 1 0001 \n",
                          "1 1\n", "\n", "99999999999 1 0000000000000001 \n"}) {
    dir_.write("convert.progress", text_ + bad + "0 6 0000000000000001 \n");
    EXPECT_EQ(read_progress(path_)->pieces.size(), 3u) << bad;
  }
}

TEST_F(ProgressLogTest, OtherFilesAreNone) {
  EXPECT_FALSE(read_progress(dir_.file("absent")));
  for (const char* other : {"", "hello\n", "{}\n", "{\"format\": 1}\n", "[]\n"}) {
    dir_.write("convert.progress", other);
    EXPECT_FALSE(read_progress(path_)) << other;
  }
}

}  // namespace
}  // namespace moeflux
