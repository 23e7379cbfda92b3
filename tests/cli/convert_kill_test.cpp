// moeflux convert, killed and started again: whatever the moment, the same container comes out.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "convert/directory_bytes.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

TEST(ConvertKill, AHundredKills) {
  const TempDir dir;
  const std::string from = source_path("tests/fixtures/mlx-dsv3-embedq"), to = dir.file("out");
  const std::vector<std::string> arguments{"convert", from, to};
  const auto began = Clock::now();
  ASSERT_EQ(run_moeflux(arguments).exit_code, 0);
  double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  const auto reference = directory_bytes(to);
  fs::remove_all(to);

  Random random(7);
  int n_killed = 0;
  for (int n_runs = 0; n_killed < 100; ++n_runs) {
    ASSERT_LT(n_runs, 1000) << "conversions end before they can be killed";
    Program program(program_path(), arguments);
    std::this_thread::sleep_for(std::chrono::duration<double>(0.8 * seconds * random.uniform()));
    program.signal(SIGKILL);
    const Outcome outcome = program.finish();
    const bool killed = outcome.exit_code == 128 + SIGKILL;
    ASSERT_TRUE(killed || outcome.exit_code == 0) << outcome.err;
    n_killed += killed ? 1 : 0;
    seconds *= killed ? 1.02 : 0.9;
    if (!fs::exists(to + "/moeflux.json")) {  // killed before the end: no command takes it
      if (n_runs % 10 == 0) {
        EXPECT_EQ(run_moeflux({"info", to}).exit_code, 1);
      }
      continue;
    }
    if (fs::exists(to + "/convert.progress")) {
      ASSERT_EQ(run_moeflux(arguments).exit_code, 0);
    }
    EXPECT_EQ(directory_bytes(to), reference);
    fs::remove_all(to);
  }
  const Outcome last = run_moeflux(arguments);
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(directory_bytes(to), reference);
}

TEST(ConvertKill, AnInterruptLeavesWorkThatCanGoOn) {
  const TempDir dir;
  const std::string from = source_path("models/demo"), to = dir.file("out");
  Program program(program_path(), {"convert", from, to});
  while (!program.ended() && !fs::exists(to + "/convert.progress")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  program.signal(SIGINT);
  const Outcome outcome = program.finish();
  // Too late for a fast machine, perhaps.
  if (outcome.exit_code != 0) {
    EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
    EXPECT_FALSE(fs::exists(to + "/moeflux.json"));
    EXPECT_EQ(run_moeflux({"convert", from, to}).exit_code, 0);
  }
  EXPECT_EQ(run_moeflux({"check", to}).exit_code, 0);
}

// A shell's limit on file sizes is an error like a full disk, not a death by signal.
TEST(ConvertKill, ALimitOnFileSizes) {
  const TempDir dir;
  const std::string from = source_path("tests/fixtures/mlx-dsv3-embedq"), to = dir.file("out");
  const std::string command = "ulimit -f 40 && exec \"$0\" convert \"$1\" \"$2\"";
  const Outcome outcome = Program("/bin/bash", {"-c", command, program_path(), from, to}).finish();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("make room"), std::string::npos) << outcome.err;
  EXPECT_EQ(run_moeflux({"info", to}).exit_code, 1);
  EXPECT_EQ(run_moeflux({"convert", from, to}).exit_code, 0);
}

}  // namespace
}  // namespace moeflux::test
