#include "experts/usage_profile.h"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {
namespace {

const std::vector<int> kShape{4, 6};

UsageProfile some_profile() {
  UsageProfile profile("0123456789abcdef", kShape);
  for (int i = 0; i < 10; ++i) profile.record(0, std::vector<int>{2, i % 2});
  for (int i = 0; i < 10; ++i) profile.record(1, std::vector<int>{5});
  profile.record(1, std::vector<int>{0, 5});
  return profile;
}

TEST(UsageProfileTest, HottestComeFirst) {
  const UsageProfile profile = some_profile();
  const std::vector<ExpertKey> hottest = profile.hottest(100);
  ASSERT_EQ(hottest.size(), 5);
  EXPECT_EQ(hottest[0], (ExpertKey{0, 2}));  // as often as the next, of an earlier layer
  EXPECT_EQ(hottest[1], (ExpertKey{1, 5}));
  EXPECT_EQ(hottest[2], (ExpertKey{0, 1}));  // as often as expert 0, but later
  EXPECT_EQ(hottest[3], (ExpertKey{0, 0}));
  EXPECT_EQ(hottest[4], (ExpertKey{1, 0}));
  EXPECT_EQ(profile.hottest(2).size(), 2);
  EXPECT_NEAR(profile.rate(0, 1), 0.5, 0.01);
  EXPECT_EQ(profile.rate(0, 3), 0);
  EXPECT_TRUE(UsageProfile("x", kShape).hottest(3).empty());
  EXPECT_TRUE(UsageProfile("x", kShape).empty());
  EXPECT_FALSE(profile.empty());
}

TEST(UsageProfileTest, OldUsesFade) {
  UsageProfile profile("x", {2}, /*half_life=*/10);
  for (int i = 0; i < 100; ++i) profile.record(0, std::vector<int>{0});
  for (int i = 0; i < 20; ++i) profile.record(0, std::vector<int>{1});
  EXPECT_NEAR(profile.rate(0, 0), 0.25, 0.01);
  EXPECT_NEAR(profile.rate(0, 1), 0.75, 0.01);
  for (int i = 0; i < 20000; ++i) profile.record(0, std::vector<int>{i % 2});  // weights rescaled
  EXPECT_NEAR(profile.rate(0, 0) + profile.rate(0, 1), 1, 1e-6);
  EXPECT_NEAR(profile.rate(0, 0), 0.5, 0.05);
}

TEST(UsageProfileTest, LoadsWhatItSaved) {
  const TempDir directory;
  const std::string path = usage_profile_path(directory.file("cache"), "0123456789abcdef");
  EXPECT_EQ(path, directory.file("cache/moeflux/0123456789abcdef.profile"));
  const UsageProfile profile = some_profile();
  profile.save(path);
  profile.save(path);
  const UsageProfile::Loaded loaded = UsageProfile::load(path, "0123456789abcdef", kShape);
  EXPECT_EQ(loaded.warning, "");
  EXPECT_EQ(loaded.profile.hottest(10), profile.hottest(10));
  for (int layer = 0; layer < 2; ++layer) {
    for (int e = 0; e < kShape[static_cast<std::size_t>(layer)]; ++e) {
      EXPECT_NEAR(loaded.profile.rate(layer, e), profile.rate(layer, e), 1e-6);
    }
  }
}

TEST(UsageProfileTest, IgnoresWhatItCannotUse) {
  const TempDir directory;
  const std::string path = directory.file("p");
  const auto warning = [&](const std::string& fingerprint, const std::vector<int>& shape) {
    const UsageProfile::Loaded loaded = UsageProfile::load(path, fingerprint, shape);
    EXPECT_TRUE(loaded.profile.empty());
    return loaded.warning;
  };
  EXPECT_EQ(warning("0123456789abcdef", kShape), "");  // no file: nothing to say
  some_profile().save(path);
  EXPECT_NE(warning("fedcba9876543210", kShape).find("another model"), std::string::npos);
  EXPECT_NE(warning("0123456789abcdef", {4}).find("other layers"), std::string::npos);
  EXPECT_NE(warning("0123456789abcdef", {4, 7}).find("layer 1"), std::string::npos);

  const std::string good = read_text_file(path);
  for (std::size_t n = 0; n < good.size(); ++n) {
    directory.write("p", good.substr(0, n));
    EXPECT_NE(warning("0123456789abcdef", kShape).find("p: usage profile ignored"),
              std::string::npos);
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    directory.write("p", bad);
    EXPECT_NE(warning("0123456789abcdef", kShape), "") << i;
  }
}

TEST(UsageProfileTest, SaysWhyItCannotBeSaved) {
  const TempDir directory;
  const std::string file = directory.write("file", "");
  expect_error(Errc::Io, {"file: creating it failed"}, [&] { some_profile().save(file + "/p"); });
}

// A child saves versions 1, 2, 3, ... without pause and is killed at some moment.
TEST(UsageProfileTest, KilledWhileSavingLeavesAWholeProfile) {
  const TempDir directory;
  const std::string path = directory.file("p");
  const std::vector<int> shape{2000};
  Random random(4);
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      UsageProfile profile("model", shape);
      for (int version = 0;; ++version) {
        profile.record(0, std::vector<int>{version % 2000});
        profile.save(path);
      }
    }
    ::usleep(static_cast<useconds_t>(random.integer(500, 15000)));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const UsageProfile::Loaded loaded = UsageProfile::load(path, "model", shape);
    EXPECT_EQ(loaded.warning, "") << round;
  }
  EXPECT_TRUE(file_exists(path));
  const UsageProfile last = UsageProfile::load(path, "model", shape).profile;
  EXPECT_FALSE(last.empty());
  last.save(path);  // what a killed process left behind is in nobody's way
  EXPECT_FALSE(file_exists(path + ".part"));
}

}  // namespace
}  // namespace moeflux::test
