// A file of the store is taken only when every byte of it is right.
#include "engine/prefix/prefix_store_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::expect_error;

class PrefixStoreFileTest : public testing::Test {
 protected:
  PrefixStoreFileTest() {
    PrefixFileWriter writer(path_, info_);
    writer.write(std::span(payload_).first(10));
    writer.write(std::span(payload_).subspan(10));
    writer.commit();
  }

  std::vector<std::byte> read(const PrefixFileInfo& info) const {
    PrefixFileReader reader(path_, info);
    std::vector<std::byte> bytes(info.payload_bytes);
    reader.read(std::span(bytes).first(bytes.size() / 3));
    reader.read(std::span(bytes).subspan(bytes.size() / 3));
    reader.finish();
    return bytes;
  }
  std::string content() const { return read_text_file(path_); }
  void replace(const std::string& content) const {
    std::ofstream(path_, std::ios::binary) << content;
  }

  test::TempDir directory_;
  const std::vector<TokenId> tokens_ = test::Random(3).tokens(20, 1000);
  const std::vector<std::byte> payload_ = std::vector<std::byte>(77, std::byte{5});
  const PrefixFileInfo info_{.identity = "some model",
                             .name = {PrefixPart::State, 20, 11, 12},
                             .first = 16,
                             .tokens = tokens_,
                             .payload_bytes = 77};
  const std::string path_ = directory_.file(info_.name.text());
};

TEST_F(PrefixStoreFileTest, ComesBack) {
  EXPECT_EQ(read(info_), payload_);
  EXPECT_EQ(std::filesystem::file_size(path_), info_.file_bytes());
  EXPECT_EQ(info_.file_bytes(), 64u + 10 + 20 * 4 + 77 + 8);
  const PrefixFileSummary summary = check_prefix_file(path_);
  EXPECT_EQ(summary.identity, "some model");
  EXPECT_EQ(summary.name, info_.name);
  EXPECT_EQ(peek_prefix_identity(path_), "some model");
}

TEST_F(PrefixStoreFileTest, BytesAreWhereTheHeaderOfTheSourceSays) {
  const std::string bytes = content();
  EXPECT_EQ(bytes.substr(0, 8), "MFXPREFX");
  const auto number = [&](std::size_t at, std::size_t n) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, n);
    return value;
  };
  EXPECT_EQ(number(8, 4), 1u);
  EXPECT_EQ(number(12, 4), 1u);
  EXPECT_EQ(number(16, 8), 11u);
  EXPECT_EQ(number(24, 8), 12u);
  EXPECT_EQ(number(32, 8), 16u);
  EXPECT_EQ(number(40, 8), 20u);
  EXPECT_EQ(number(48, 4), 10u);
  EXPECT_EQ(number(56, 8), 77u);
  EXPECT_EQ(bytes.substr(64, 10), "some model");
  EXPECT_EQ(number(74, 4), static_cast<std::uint64_t>(tokens_[0]));
  EXPECT_EQ(number(bytes.size() - 8, 8),
            checksum(std::string_view(bytes).substr(0, bytes.size() - 8)));
}

TEST_F(PrefixStoreFileTest, AnyWrongBitIsSeen) {
  const std::string good = content();
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    replace(bad);
    EXPECT_THROW(read(info_), Error) << at;
    expect_error(Errc::BadInput, {path_}, [&] { check_prefix_file(path_); });
  }
  replace(good);
  EXPECT_EQ(read(info_), payload_);
}

TEST_F(PrefixStoreFileTest, AnyOtherLengthIsSeen) {
  const std::string good = content();
  for (std::size_t n = 0; n < good.size(); ++n) {
    replace(good.substr(0, n));
    expect_error(Errc::BadInput, {path_}, [&] { read(info_); });
    expect_error(Errc::BadInput, {path_}, [&] { check_prefix_file(path_); });
  }
  replace(good + "x");
  expect_error(Errc::BadInput, {path_}, [&] { read(info_); });
  expect_error(Errc::BadInput, {path_}, [&] { check_prefix_file(path_); });
}

// The same name, by accident or on purpose, is not the same tokens.
TEST_F(PrefixStoreFileTest, OtherTokensAreAnotherFile) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::vector<TokenId> other = tokens_;
    ++other[i];
    PrefixFileInfo info = info_;
    info.tokens = other;
    expect_error(Errc::BadInput, {path_, "other tokens"}, [&] { read(info); });
  }
  PrefixFileInfo info = info_;
  info.identity = "same model";
  expect_error(Errc::BadInput, {path_, "another model"}, [&] { read(info); });
  info = info_;
  info.first = 15;
  expect_error(Errc::BadInput, {path_}, [&] { read(info); });
  check_prefix_file(path_);  // nothing is wrong with it
}

TEST_F(PrefixStoreFileTest, ASoundFileUnderAnotherNameIsNotSound) {
  const std::string other = directory_.file(info_.name.as(PrefixPart::Kv).text());
  std::filesystem::copy_file(path_, other);
  expect_error(Errc::BadInput, {"another name"}, [&] { check_prefix_file(other); });
  expect_error(Errc::NotFound, {}, [&] { check_prefix_file(directory_.file("none")); });
  EXPECT_EQ(peek_prefix_identity(directory_.file("none")), "");
}

// Sizes in a header are never believed: no memory is asked for because of them.
TEST_F(PrefixStoreFileTest, EnormousSizes) {
  for (const std::size_t at : {std::size_t{40}, std::size_t{48}, std::size_t{56}}) {
    std::string bad = content();
    for (std::size_t i = 0; i < 4; ++i) bad[at + i] = static_cast<char>(0xff);
    if (at != 48) bad.replace(at + 4, 4, "\xff\xff\xff\x7f");
    replace(bad);
    expect_error(Errc::BadInput, {path_}, [&] { check_prefix_file(path_); });
    EXPECT_EQ(peek_prefix_identity(path_), "");
  }
}

TEST(PrefixStoreKeyTest, NamesComeBackFromTheirText) {
  for (const PrefixPart part : {PrefixPart::Kv, PrefixPart::State, PrefixPart::Mtp}) {
    const PrefixName name{part, 4711, 0x1234, 0xfedcba9876543210};
    EXPECT_EQ(PrefixName::parse(name.text()), name) << name.text();
  }
  EXPECT_EQ((PrefixName{PrefixPart::State, 7, 1, 2}.text()),
            "7-0000000000000001-0000000000000002.state");
}

TEST(PrefixStoreKeyTest, EverythingElseIsNotOurs) {
  const std::string good = PrefixName{PrefixPart::Kv, 256, 1, 2}.text();
  ASSERT_TRUE(PrefixName::parse(good));
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_FALSE(PrefixName::parse(good.substr(0, n))) << good.substr(0, n);
    EXPECT_FALSE(PrefixName::parse(good.substr(0, n) + "/" + good.substr(n)));
  }
  for (const std::string& text :
       {good + ".part", good + "2", " " + good, "-" + good, "0" + good.substr(3),
        "99999999999999999999" + good.substr(3), std::string("README"), std::string("lock")}) {
    EXPECT_FALSE(PrefixName::parse(text)) << text;
  }
}

TEST(PrefixStoreKeyTest, ABlockIsNamedByAllTokensUpToItsEnd) {
  std::vector<TokenId> tokens = test::Random(1).tokens(100, 1000);
  const PrefixKeys keys(5, 16, tokens);
  EXPECT_EQ(keys.n_blocks(), 6);
  EXPECT_EQ(keys.key_after(0), 5u);
  EXPECT_EQ(keys.block_name(0).parent, 5u);
  EXPECT_EQ(keys.block_name(3).parent, keys.block_name(2).key);
  EXPECT_EQ(keys.block_name(3).end, 64);
  EXPECT_EQ(keys.state_name(70).parent, keys.block_name(3).key);
  EXPECT_EQ(keys.state_name(64).parent, keys.block_name(3).key);
  EXPECT_EQ(keys.state_name(5).parent, 5u);

  for (const std::size_t changed : {std::size_t{0}, std::size_t{15}, std::size_t{40}}) {
    std::vector<TokenId> other = tokens;
    ++other[changed];
    const PrefixKeys others(5, 16, other);
    for (std::int64_t i = 0; i < keys.n_blocks(); ++i) {
      const bool before = (i + 1) * 16 <= static_cast<std::int64_t>(changed);
      EXPECT_EQ(keys.block_name(i) == others.block_name(i), before) << changed << " " << i;
    }
    for (std::int64_t p = 1; p <= 100; ++p) {
      const bool before = p <= static_cast<std::int64_t>(changed);
      EXPECT_EQ(keys.state_name(p) == others.state_name(p), before) << changed << " " << p;
    }
  }
}

TEST(PrefixStoreKeyTest, LongerTokensHaveTheSameNamesBefore) {
  const std::vector<TokenId> tokens = test::Random(2).tokens(100, 1000);
  const PrefixKeys all(5, 16, tokens);
  const PrefixKeys some(5, 16, std::span(tokens).first(50));
  EXPECT_EQ(some.n_blocks(), 3);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(some.block_name(i), all.block_name(i));
  for (std::int64_t p = 1; p <= 50; ++p) EXPECT_EQ(some.state_name(p), all.state_name(p));
  EXPECT_NE(PrefixKeys(6, 16, tokens).block_name(0), all.block_name(0));
}

}  // namespace
}  // namespace moeflux
