// Room, budgets, and everything that can be wrong with a directory.
#include "engine/prefix/prefix_store.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/file_calls.h"
#include "engine/prefix/prefix_store_directory.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

std::vector<TokenId> tokens(std::uint64_t seed, std::int64_t n = 20) {
  return test::Random(seed).tokens(n, 1000);
}

// States of `bytes` bytes that end within the first block.
class Fixture {
 public:
  explicit Fixture(PrefixStoreOptions options) : store(std::move(options), "model") {}

  PrefixFileInfo info(std::span<const TokenId> of, std::uint64_t bytes) const {
    return {.identity = "model",
            .name = store.keys(of).state_name(static_cast<std::int64_t>(of.size())),
            .first = 0,
            .tokens = of,
            .payload_bytes = bytes};
  }
  bool put(std::span<const TokenId> of, std::uint64_t bytes = 1000) {
    const PrefixFileInfo file = info(of, bytes);
    if (!store.reserve({&file, 1}, {})) return false;
    return store.write(file, [&](PrefixFileWriter& writer) {
      writer.write(std::vector<std::byte>(bytes, static_cast<std::byte>(of[0])));
    });
  }
  bool get(std::span<const TokenId> of, std::uint64_t bytes = 1000) {
    std::vector<std::byte> payload(bytes);
    return store.read(info(of, bytes), [&](PrefixFileReader& reader) { reader.read(payload); }) &&
           payload == std::vector<std::byte>(bytes, static_cast<std::byte>(of[0]));
  }

  PrefixStore store;
};

class PrefixStoreTest : public testing::Test {
 protected:
  PrefixStoreOptions options() const {
    return {.directory = path_, .free_bytes = [](const auto&) { return std::uint64_t{1} << 40; }};
  }
  // Some time ago, so that what comes next is newer.
  void age(const Fixture& fixture, std::span<const TokenId> of, int seconds) const {
    const std::string name = fixture.info(of, 0).name.text();
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      if (entry.path().filename() != name) continue;
      const timespec then[2] = {{::time(nullptr) - seconds, 0}, {::time(nullptr) - seconds, 0}};
      ::utimensat(AT_FDCWD, entry.path().c_str(), then, 0);
    }
  }
  test::TempDir directory_;
  const std::string path_ = directory_.file("store");
};

TEST_F(PrefixStoreTest, KeepsAndFinds) {
  Fixture fixture(options());
  const auto a = tokens(1);
  EXPECT_FALSE(fixture.get(a));
  EXPECT_TRUE(fixture.put(a));
  EXPECT_TRUE(fixture.get(a));
  EXPECT_FALSE(fixture.get(tokens(2)));
  const auto longer = tokens(1, 30);
  EXPECT_EQ(fixture.store.find(fixture.store.keys(longer), 30, true),
            std::vector<std::int64_t>{20});
  EXPECT_TRUE(fixture.store.find(fixture.store.keys(longer), 19, true).empty());
  EXPECT_EQ(fixture.store.warning(), "");
  EXPECT_EQ(fixture.store.stats().files_written, 1u);
  EXPECT_EQ(fixture.store.stats().files_read, 1u);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_all);
}

TEST_F(PrefixStoreTest, TheLeastRecentlyUsedMakesRoom) {
  PrefixStoreOptions limited = options();
  limited.max_bytes = 3500;  // three files
  Fixture fixture(limited);
  const auto a = tokens(1), b = tokens(2), c = tokens(3), d = tokens(4);
  for (const auto* each : {&a, &b, &c}) ASSERT_TRUE(fixture.put(*each));
  age(fixture, a, 300);
  age(fixture, b, 200);
  age(fixture, c, 100);
  EXPECT_TRUE(fixture.get(a));           // used now
  EXPECT_TRUE(Fixture(limited).put(d));  // after a restart
  EXPECT_TRUE(fixture.get(a));
  EXPECT_FALSE(fixture.get(b));
  EXPECT_TRUE(fixture.get(c));
  EXPECT_TRUE(fixture.get(d));
  EXPECT_LE(summarize_prefix_store(path_).bytes, limited.max_bytes);
}

TEST_F(PrefixStoreTest, WhatIsTooLargeIsNotKeptAndSaidOnce) {
  PrefixStoreOptions limited = options();
  limited.max_bytes = 3000;
  Fixture fixture(limited);
  EXPECT_TRUE(fixture.put(tokens(1)));
  EXPECT_FALSE(fixture.put(tokens(2), 5000));
  EXPECT_NE(fixture.store.warning().find("2.9 KiB"), std::string::npos) << fixture.store.warning();
  EXPECT_TRUE(fixture.get(tokens(1)));  // nothing was evicted for it
}

TEST_F(PrefixStoreTest, NeverMoreThanATenthOfWhatIsFree) {
  PrefixStoreOptions limited = options();
  std::uint64_t free = 100'000;
  limited.free_bytes = [&](const std::string& directory) {
    EXPECT_EQ(directory, path_);
    return free;
  };
  Fixture fixture(limited);
  for (std::uint64_t seed = 1; seed < 20; ++seed) EXPECT_TRUE(fixture.put(tokens(seed)));
  EXPECT_LE(summarize_prefix_store(path_).bytes, 11'000u);
  EXPECT_GE(summarize_prefix_store(path_).bytes, 8'000u);
  free = 0;  // the disk has filled up
  EXPECT_FALSE(fixture.put(tokens(30)));
  EXPECT_LE(summarize_prefix_store(path_).bytes, 1'200u);
  EXPECT_NE(fixture.store.warning(), "");
}

TEST_F(PrefixStoreTest, OnlySoMuchIsWrittenADay) {
  PrefixStoreOptions limited = options();
  limited.max_bytes_per_day = 4000;
  Fixture first(limited), second(limited);
  EXPECT_TRUE(first.put(tokens(1)));
  EXPECT_TRUE(second.put(tokens(2)));
  EXPECT_TRUE(first.put(tokens(3)));
  EXPECT_FALSE(second.put(tokens(4)));
  EXPECT_NE(second.store.warning().find("today"), std::string::npos) << second.store.warning();
  EXPECT_TRUE(second.get(tokens(3)));  // reading goes on
  EXPECT_FALSE(Fixture(limited).put(tokens(4)));

  const std::int64_t today = ::time(nullptr) / 86400;
  EXPECT_EQ(summarize_prefix_store(path_).written_today, bytes_written_on(path_, today));
  EXPECT_GT(bytes_written_on(path_, today), 3000u);
  EXPECT_EQ(bytes_written_on(path_, today + 1), 0u);
  set_bytes_written(path_, today - 1, 1'000'000);  // that was yesterday
  EXPECT_TRUE(Fixture(limited).put(tokens(4)));
  for (const char* nonsense : {"", "x", "1 2 3", "-1 5", "99999999999999999999999 1"}) {
    std::ofstream(path_ + "/written") << nonsense;
    EXPECT_EQ(bytes_written_on(path_, today), 0u) << nonsense;
  }
  PrefixStoreOptions unlimited = options();
  unlimited.max_bytes_per_day = 0;
  EXPECT_TRUE(Fixture(unlimited).put(tokens(5), 100'000));
}

TEST_F(PrefixStoreTest, FilesOfOthersStay) {
  Fixture fixture(options());
  ASSERT_TRUE(fixture.put(tokens(1)));
  std::ofstream(path_ + "/README") << "mine";
  fs::create_directories(path_ + "/0123456789abcdef/deeper");
  std::ofstream(path_ + "/0123456789abcdef/letter.kv") << "mine";
  EXPECT_TRUE(fixture.get(tokens(1)));
  EXPECT_TRUE(fixture.put(tokens(2)));
  EXPECT_EQ(summarize_prefix_store(path_).n_foreign, 3u);
  EXPECT_EQ(clear_prefix_store(path_), 2u);
  EXPECT_TRUE(fs::exists(path_ + "/README"));
  EXPECT_TRUE(fs::exists(path_ + "/0123456789abcdef/letter.kv"));
  EXPECT_EQ(summarize_prefix_store(path_).n_files, 0u);
  EXPECT_FALSE(fixture.get(tokens(1)));
  EXPECT_TRUE(fixture.put(tokens(1)));
}

TEST_F(PrefixStoreTest, VerifyDeletesWhatIsDamaged) {
  Fixture fixture(options());
  for (std::uint64_t seed = 1; seed < 4; ++seed) ASSERT_TRUE(fixture.put(tokens(seed)));
  const PrefixScan scan = scan_prefix_store(path_);
  std::ofstream(scan.files[1].path(path_), std::ios::app) << "more";
  const PrefixStoreCheck check = verify_prefix_store(path_);
  EXPECT_EQ(check.n_files, 2u);
  EXPECT_EQ(check.bytes, scan.files[0].bytes + scan.files[2].bytes);
  ASSERT_EQ(check.damaged.size(), 1u);
  EXPECT_NE(check.damaged[0].find(scan.files[1].name.text()), std::string::npos);
  EXPECT_TRUE(verify_prefix_store(path_).damaged.empty());
}

TEST_F(PrefixStoreTest, SummaryNamesTheModels) {
  Fixture fixture(options());
  ASSERT_TRUE(fixture.put(tokens(1)));
  const PrefixStoreSummary summary = summarize_prefix_store(path_);
  ASSERT_EQ(summary.models.size(), 1u);
  EXPECT_EQ(summary.models[0].identity, "model");
  EXPECT_EQ(summary.models[0].n_states, 1u);
  EXPECT_EQ(summary.models[0].longest, 20);
  EXPECT_EQ(summary.models[0].bytes, summary.bytes);
}

// Where no store can be, there is none, and that is all.
TEST_F(PrefixStoreTest, PlacesThatCannotBe) {
  std::ofstream(directory_.file("file")) << "x";
  for (const std::string& place :
       {directory_.file("file"), directory_.file("file") + "/below", std::string("/proc/none"),
        std::string("/dev/null/x"), std::string()}) {
    PrefixStoreOptions elsewhere = options();
    elsewhere.directory = place;
    Fixture fixture(elsewhere);
    EXPECT_FALSE(fixture.get(tokens(1))) << place;
    EXPECT_FALSE(fixture.put(tokens(1))) << place;
    EXPECT_NE(fixture.store.warning(), "") << place;
    const std::string first = fixture.store.warning();
    EXPECT_FALSE(fixture.put(tokens(2))) << place;
    EXPECT_EQ(fixture.store.warning(), first);
    EXPECT_FALSE(fixture.get(tokens(1))) << place;
  }
}

// Runs body in a process of its own; its value is the exit code.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST_F(PrefixStoreTest, ADirectoryThatMayOnlyBeRead) {
  ASSERT_TRUE(Fixture(options()).put(tokens(1)));
  fs::permissions(directory_.path(), fs::perms(0755));
  for (const auto& entry : fs::recursive_directory_iterator(path_))
    fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0555) : fs::perms(0444));
  fs::permissions(path_, fs::perms(0555));
  EXPECT_EQ(in_child([&] {
              if (::geteuid() == 0 && ::seteuid(65534) != 0) return 77;
              Fixture fixture(options());
              if (!fixture.get(tokens(1))) return 1;
              if (fixture.put(tokens(2))) return 2;
              if (fixture.store.warning().find("Permission denied") == std::string::npos) return 3;
              return fixture.get(tokens(1)) ? 0 : 4;
            }),
            0);
  fs::permissions(path_, fs::perms(0755));
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.is_directory()) fs::permissions(entry.path(), fs::perms(0755));
}

// A file that may not grow behaves as a disk that is full.
TEST_F(PrefixStoreTest, AFullDisk) {
  ASSERT_TRUE(Fixture(options()).put(tokens(1)));
  for (const rlim_t most : {rlim_t{0}, rlim_t{50}, rlim_t{500}, rlim_t{1000}}) {
    EXPECT_EQ(in_child([&] {
                std::signal(SIGXFSZ, SIG_IGN);
                const rlimit limit{most, most};
                ::setrlimit(RLIMIT_FSIZE, &limit);
                Fixture fixture(options());
                if (fixture.put(tokens(2))) return 1;
                if (fixture.store.warning().find("File too large") == std::string::npos) return 2;
                if (fixture.put(tokens(3), 1)) return 3;
                return fixture.get(tokens(1)) ? 0 : 4;
              }),
              0);
    EXPECT_EQ(summarize_prefix_store(path_).n_leftovers, 0u);
    EXPECT_EQ(summarize_prefix_store(path_).n_files, 1u);
  }
  EXPECT_TRUE(Fixture(options()).put(tokens(2)));
}

// Whichever call it is that fails.
TEST_F(PrefixStoreTest, AFailureAtEveryPoint) {
  ASSERT_TRUE(Fixture(options()).put(tokens(1)));
  for (int n_calls = 0;; ++n_calls) {
    ASSERT_LT(n_calls, 50);
    Fixture fixture(options());
    int n = 0;
    bool put = false;
    {
      const test::FileCallGuard guard([&](const auto&) { return n++ >= n_calls ? ENOSPC : 0; });
      put = fixture.put(tokens(2));
    }
    EXPECT_TRUE(verify_prefix_store(path_).damaged.empty());
    EXPECT_TRUE(fixture.get(tokens(1)));
    EXPECT_EQ(fixture.get(tokens(2)), put);
    EXPECT_EQ(fixture.store.warning().empty(), put);
    if (n <= n_calls) {
      EXPECT_TRUE(put);
      EXPECT_GE(n_calls, 6);
      break;
    }
  }
}

// A name appears only after everything under it has reached the disk.
TEST_F(PrefixStoreTest, BytesAreSyncedBeforeTheName) {
  std::vector<std::string> calls;
  {
    const test::FileCallGuard guard([&](const test::FileCall& call) {
      calls.push_back(call.name + " " + fs::path(call.path).filename().string());
      return 0;
    });
    ASSERT_TRUE(Fixture(options()).put(tokens(1)));
  }
  const std::string name = scan_prefix_store(path_).files.at(0).name.text();
  const auto at = [&](const std::string& call) {
    return std::find(calls.begin(), calls.end(), call) - calls.begin();
  };
  EXPECT_LT(at("fsync " + name + ".part"), at("rename " + name));
  EXPECT_LT(at("rename " + name), static_cast<std::ptrdiff_t>(calls.size()) - 1);  // the directory
  EXPECT_TRUE(calls.back().starts_with("fsync "));
}

// A filesystem of its own, which nobody else sees and which ends with the process.
TEST_F(PrefixStoreTest, ADiskThatIsReallyFull) {
  const int code = in_child([&] {
    fs::create_directories(path_);
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=64k") != 0) {
      return 77;
    }
    Fixture fixture(options());  // believes that much is free
    if (!fixture.put(tokens(1))) return 1;
    if (fixture.put(tokens(2), 200'000)) return 2;
    if (fixture.store.warning().find("No space left") == std::string::npos) return 3;
    if (!fixture.get(tokens(1))) return 4;
    PrefixStoreOptions honest = options();
    honest.free_bytes = {};
    return Fixture(honest).put(tokens(3), 20'000) ? 5 : 0;  // more than a tenth
  });
  if (code == 77) GTEST_SKIP() << "SKIP: this user cannot mount a filesystem";
  EXPECT_EQ(code, 0);
}

// The lock of a process that is stopped holds nobody up for long.
TEST_F(PrefixStoreTest, ALockThatDoesNotComeFree) {
  Fixture fixture(options());
  ASSERT_TRUE(fixture.put(tokens(1)));
  {
    const auto lock = PrefixStoreLock::take(path_);
    ASSERT_TRUE(lock);
    EXPECT_FALSE(PrefixStoreLock::take(path_, 20));
    EXPECT_FALSE(fixture.put(tokens(2)));
    EXPECT_EQ(fixture.store.warning(), "");
    EXPECT_TRUE(fixture.get(tokens(1)));
  }
  EXPECT_TRUE(fixture.put(tokens(2)));
}

}  // namespace
}  // namespace moeflux
