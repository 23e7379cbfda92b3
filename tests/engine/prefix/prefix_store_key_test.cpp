#include "engine/prefix/prefix_store_key.h"

#include <gtest/gtest.h>

#include "support/random.h"

namespace moeflux {
namespace {

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
