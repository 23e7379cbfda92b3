// A process that is killed while it saves: the file is always the old one or the new one.
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/snapshot_support.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::memory_of;
using test::SmallModel;

// Saves sessions of lengths 1, 2, 3, ... over each other until it is killed.
[[noreturn]] void save_forever(const std::string& path, SmallModel& model, std::int64_t length) {
  try {
    for (;; length = length % test::kContext + 1)
      save_snapshot(path, model.filled(length, static_cast<std::uint64_t>(length)),
                    model.snapshot());
  } catch (...) {
    ::_exit(3);
  }
}

TEST(SnapshotKill, NothingCorruptIsLoadedAndNothingOlderIsLost) {
  const test::TempDir dir;
  const std::string path = dir.file("session.mflx");
  SmallModel model;
  // Kills come within the time of three saves, whatever the disk.
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) save_snapshot(path, model.filled(1, 1), model.snapshot());
  const std::chrono::duration<double> longest =
      (std::chrono::steady_clock::now() - start) / 5 * 3 + std::chrono::milliseconds(3);
  test::Random random(1);
  std::int64_t last = 1;
  int n_advanced = 0, n_parts = 0;
  for (int i = 0; i < 200; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_forever(path, model, last % test::kContext + 1);
    std::this_thread::sleep_for(longest * random.uniform());
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "saving failed";

    Session session = model.empty();
    ASSERT_EQ(load_snapshot(path, session, model.snapshot()), SnapshotVersion::V3);
    const std::int64_t length = session.length();
    ASSERT_TRUE(memory_of(session) ==
                memory_of(model.filled(length, static_cast<std::uint64_t>(length))));
    if (length != last) ++n_advanced;
    last = length;
    n_parts += std::filesystem::exists(path + ".part") ? 1 : 0;
  }
  EXPECT_GT(n_advanced, 0);
  EXPECT_GT(n_parts, 0);

  // What killed processes have left behind is used up by the next.
  save_snapshot(path, model.filled(7, 7), model.snapshot());
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, std::set<std::string>{"session.mflx"});
}

}  // namespace
}  // namespace moeflux
