// Conversions that are killed: nothing opens before the end, and the next one goes on to the very
// same bytes.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/convert.h"
#include "convert/directory_bytes.h"
#include "convert/file_calls.h"
#include "convert/same_model.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using test::directory_bytes;
using test::fixture_path;

class ResumeTest : public testing::Test {
 protected:
  ConvertOptions options() const {
    ConvertOptions options;
    options.n_threads = 2;
    options.checkpoint_bytes = 50000;
    options.stripes = {{to_, 1}, {to_ + "/other", 1}};
    return options;
  }

  // A conversion in a process of its own, with one of its calls to the system its last.
  pid_t start(int last_call = 0) const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    int code = 1;
    try {
      int n_calls = 0;
      ConvertOptions how = options();
      if (last_call > 0) how.n_threads = 1;
      const test::FileCallGuard guard([&](const test::FileCall&) {
        if (++n_calls == last_call) ::kill(::getpid(), SIGKILL);
        return 0;
      });
      convert(from_, to_, how);
      code = 0;
    } catch (...) {
    }
    ::_exit(code);
  }

  // Whether it was killed; otherwise it did its work.
  static bool was_killed(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }

  void finish() const {
    const test::FileCallGuard quick;
    convert(from_, to_, options());
  }

  using Bytes = std::map<std::string, std::string>;
  // What an uninterrupted conversion makes. Leaves nothing behind.
  Bytes convert_once() const {
    finish();
    Bytes bytes = directory_bytes(to_);
    fs::remove_all(to_);
    return bytes;
  }

  // After a kill there is no model, or a whole one, and the next conversion may have to tidy up.
  // Returns whether there is one.
  bool is_published(const Bytes& reference) const {
    if (!fs::exists(to_ + "/moeflux.json")) {
      EXPECT_THROW(open_source(to_), Error);
      return false;
    }
    Bytes bytes = directory_bytes(to_);
    bytes.erase("convert.progress");
    EXPECT_EQ(bytes, reference);
    return true;
  }

  const std::string from_ = fixture_path("dsv3-halfsplit");
  test::TempDir dir_;
  std::string to_ = dir_.file("out");
};

TEST_F(ResumeTest, KilledAtAHundredRandomPoints) {
  const Bytes reference = convert_once();
  const auto began = Clock::now();
  ASSERT_FALSE(was_killed(start()));
  // Runs that are too short to finish, so that each leaves another state to the next one. A machine
  // that gets faster or slower is followed.
  double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  fs::remove_all(to_);

  test::Random random(42);
  int n_killed = 0, n_resumed = 0;
  for (int n_runs = 0; n_killed < 100; ++n_runs) {
    ASSERT_LT(n_runs, 1000) << "conversions end before they can be killed";
    const pid_t child = start();
    ASSERT_GT(child, 0);
    std::this_thread::sleep_for(std::chrono::duration<double>(0.6 * seconds * random.uniform()));
    ::kill(child, SIGKILL);
    const bool killed = was_killed(child);
    n_killed += killed ? 1 : 0;
    seconds *= killed ? 1.02 : 0.9;
    if (!is_published(reference)) continue;
    if (fs::exists(to_ + "/convert.progress")) finish();
    EXPECT_EQ(directory_bytes(to_), reference);
    fs::remove_all(to_);
    ++n_resumed;
  }
  RecordProperty("resumed_to_the_end", n_resumed);
  if (!fs::exists(to_)) return;
  finish();
  EXPECT_EQ(directory_bytes(to_), reference);
}

// Between any two changes of a file.
TEST_F(ResumeTest, KilledAtEveryPoint) {
  const Bytes reference = convert_once();
  int n_calls = 0, n_published = 0;
  for (bool killed = true; killed; ++n_calls) {
    ASSERT_LT(n_calls, 2000);
    killed = was_killed(start(n_calls + 1));
    n_published += is_published(reference) ? 1 : 0;
    if (killed) finish();
    ASSERT_EQ(directory_bytes(to_), reference) << "killed at call " << n_calls + 1;
    fs::remove_all(to_);
  }
  EXPECT_GT(n_calls, 100);
  EXPECT_EQ(n_published, 2) << "the end, and the last call: the sync of the manifest's name";
}

TEST_F(ResumeTest, StoppedAtEveryStep) {
  const Bytes reference = convert_once();
  // Each run does one step more than what is there, then fails.
  int n_runs = 0;
  for (bool done = false; !done; ++n_runs) {
    ConvertOptions stop = options();
    stop.n_threads = 1;
    std::uint64_t first = UINT64_MAX;
    stop.progress = [&](const ConvertProgress& p) {
      if (p.stage == ConvertProgress::Stage::Verifying) return;
      if (first == UINT64_MAX) first = p.bytes_done;
      if (p.bytes_done > first + 30000) fail(Errc::Cancelled, "stop");
    };
    try {
      convert(from_, to_, stop);
      done = true;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::Cancelled) << error.what();
      EXPECT_THROW(open_source(to_), Error);
    }
    ASSERT_LT(n_runs, 100);
  }
  EXPECT_GT(n_runs, 5);
  EXPECT_EQ(directory_bytes(to_), reference);
}

TEST_F(ResumeTest, StoppedWhileVerifying) {
  ConvertOptions stop = options();
  stop.progress = [](const ConvertProgress& p) {
    if (p.stage == ConvertProgress::Stage::Verifying) fail(Errc::Cancelled, "stop");
  };
  EXPECT_THROW(convert(from_, to_, stop), Error);
  EXPECT_THROW(open_source(to_), Error);
  const ConvertReport report = convert(from_, to_, options());
  EXPECT_EQ(report.resumed_bytes, report.bytes);
  test::expect_same_model(*open_source(from_), *open_source(to_));
}

// Damage to what an earlier run wrote is found by reading it back.
TEST_F(ResumeTest, WhatChangedMeanwhileIsNotPublished) {
  ConvertOptions stop = options();
  stop.progress = [](const ConvertProgress& p) {
    if (p.stage == ConvertProgress::Stage::Verifying) fail(Errc::Cancelled, "stop");
  };
  EXPECT_THROW(convert(from_, to_, stop), Error);
  std::string bytes = read_text_file(to_ + "/dense.bin");
  bytes[0] = static_cast<char>(bytes[0] ^ 1);
  dir_.write("out/dense.bin", bytes);
  test::expect_error(Errc::Io, {"dense.bin", "does not read back"},
                     [&] { convert(from_, to_, options()); });
  EXPECT_THROW(open_source(to_), Error);
  ConvertOptions force = options();
  force.force = true;
  convert(from_, to_, force);
  test::expect_same_model(*open_source(from_), *open_source(to_));
}

}  // namespace
}  // namespace moeflux
