#include "convert/scrub.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "convert/convert.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

// Flips one bit of a file, and back when it goes.
class Flip {
 public:
  Flip(std::string path, std::uint64_t offset, int bit)
      : path_(std::move(path)), offset_(offset), mask_(static_cast<char>(1 << bit)) {
    flip();
  }
  ~Flip() { flip(); }
  Flip(const Flip&) = delete;
  Flip& operator=(const Flip&) = delete;

 private:
  void flip() const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    char byte = 0;
    file.seekg(static_cast<std::streamoff>(offset_)).get(byte);
    file.seekp(static_cast<std::streamoff>(offset_)).put(static_cast<char>(byte ^ mask_));
  }
  std::string path_;
  std::uint64_t offset_;
  char mask_;
};

class ScrubTest : public testing::Test {
 protected:
  ScrubTest() {
    ConvertOptions options;
    options.stripes = {{to_ + "/a", 1}, {to_ + "/b", 1}};
    convert(test::fixture_path("dsv3-noqlora"), to_, options);
    source_ = open_source(to_);
  }

  test::TempDir dir_;
  std::string to_ = dir_.file("out");
  std::shared_ptr<const ModelSource> source_;
};

TEST_F(ScrubTest, AnIntactContainer) {
  std::uint64_t last = 0, total = 0;
  ScrubOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  const ScrubReport report = scrub(*source_, options);
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(source_->records().size(), 39u + 21);
  EXPECT_EQ(report.n_checksums, source_->records().size() + source_->text_records().size());
  EXPECT_EQ(last, report.bytes);
  EXPECT_EQ(total, report.bytes);
}

TEST_F(ScrubTest, FindsChangedTexts) {
  ASSERT_FALSE(source_->text_records().empty());
  bool has_config = false;
  for (const TextRecord& text : source_->text_records()) {
    has_config |= text.name == "config.json";
    const Flip flip(text.path, text.bytes / 2, 1);
    const ScrubReport report = scrub(*source_, {});
    ASSERT_EQ(report.damage.size(), 1u) << text.name;
    EXPECT_EQ(report.damage[0].name, text.name);
    EXPECT_NE(report.damage[0].what.find("not as it was converted"), std::string::npos);
  }
  EXPECT_TRUE(has_config);
  fs::remove(source_->text_records()[0].path);
  EXPECT_EQ(scrub(*source_, {}).damage.size(), 1u);
}

TEST_F(ScrubTest, FindsEachFlippedBitAndNamesItsPlace) {
  test::Random random(2);
  for (const Record& record : source_->records()) {
    // The first byte, the last one (an expert's is padding), and one between.
    const std::uint64_t last = record.extent.bytes - 1;
    for (const std::uint64_t at : {std::uint64_t{0}, last, random.bits() % record.extent.bytes}) {
      const DiskPiece piece =
          source_->locate({record.extent.file, record.extent.offset + at, 1})[0];
      const File& file = source_->disk_file(piece.file);
      const Flip flip(file.path(), piece.offset, static_cast<int>(random.bits() % 8));
      const ScrubReport report = scrub(*source_, {});
      ASSERT_EQ(report.damage.size(), 1u) << record.name << " byte " << at;
      EXPECT_EQ(report.damage[0].name, record.name);
      EXPECT_NE(report.damage[0].path.find(file.path()), std::string::npos);
      EXPECT_NE(report.damage[0].what.find("checksum"), std::string::npos);
    }
  }
  EXPECT_TRUE(scrub(*source_, {}).damage.empty());
}

TEST_F(ScrubTest, NamesEveryDamagedExpert) {
  const std::string path = to_ + "/a/experts-001.bin";
  const std::uint64_t share = fs::file_size(path) / 7;
  const Flip first(path, 2 * share + 5, 0), second(path, 6 * share, 7);
  const ScrubReport report = scrub(*source_, {.n_threads = 3, .progress = {}});
  ASSERT_EQ(report.damage.size(), 2u);
  EXPECT_EQ(report.damage[0].name, "model.layers.1.mlp.experts expert 2");
  EXPECT_EQ(report.damage[1].name, "model.layers.1.mlp.experts expert 6");
}

TEST_F(ScrubTest, AFileThatShrankIsDamageToo) {
  fs::resize_file(to_ + "/b/experts-000.bin", 4096);
  const ScrubReport report = scrub(*source_, {});
  ASSERT_EQ(report.damage.size(), 6u);
  EXPECT_EQ(report.damage[0].name, "model.layers.0.mlp.experts expert 1");
  EXPECT_NE(report.damage[0].what.find("ends at byte 4096"), std::string::npos);
}

TEST_F(ScrubTest, AnInterruptEndsIt) {
  ScrubOptions options;
  options.progress = [](std::uint64_t, std::uint64_t) { fail(Errc::Cancelled, "stop"); };
  EXPECT_THROW(scrub(*source_, options), Error);
}

TEST(Scrub, OtherLayoutsAreRead) {
  const test::TempDir dir;
  fs::copy(test::fixture_path("qwen-onekv"), dir.path(), fs::copy_options::recursive);
  const auto source = open_source(dir.path());
  const ScrubReport report = scrub(*source, {});
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.n_checksums, 0u);
  EXPECT_EQ(report.bytes, fs::file_size(dir.file("model.safetensors")));
  fs::resize_file(dir.file("model.safetensors"), 300000);
  const ScrubReport broken = scrub(*source, {});
  ASSERT_EQ(broken.damage.size(), 1u);
  EXPECT_NE(broken.damage[0].name.find("model.language_model"), std::string::npos);
}

}  // namespace
}  // namespace moeflux
