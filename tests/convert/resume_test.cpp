// Conversions that are killed, or run out of disk: nothing opens before the end, and the next one
// goes on to the very same bytes.
#include <chrono>
#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/convert.h"
#include "convert/directory_bytes.h"
#include "convert/same_model.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
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

  // A conversion in a process of its own.
  pid_t start() const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    int code = 1;
    try {
      convert(from_, to_, options());
      code = 0;
    } catch (...) {
    }
    ::_exit(code);
  }

  const std::string from_ = fixture_path("dsv3-halfsplit");
  test::TempDir dir_;
  std::string to_ = dir_.file("out");
};

TEST_F(ResumeTest, KilledAtAHundredRandomPoints) {
  // What must come out, and how long it takes.
  const auto began = Clock::now();
  convert(from_, to_, options());
  const auto duration = std::chrono::duration<double>(Clock::now() - began);
  const auto reference = directory_bytes(to_);
  fs::remove_all(to_);

  test::Random random(42);
  int n_killed = 0, n_finished = 0;
  const auto deadline = Clock::now() + 50s;
  while (n_killed < 100 && Clock::now() < deadline) {
    const pid_t child = start();
    ASSERT_GT(child, 0);
    // Short runs, so that many are needed and each leaves another state behind.
    std::this_thread::sleep_for(duration * (0.6 * random.uniform()));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    n_killed += WIFSIGNALED(status) ? 1 : 0;
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    if (fs::exists(to_ + "/moeflux.json")) {
      // The end was reached; only the log may be left.
      auto bytes = directory_bytes(to_);
      bytes.erase("convert.progress");
      EXPECT_EQ(bytes, reference);
      if (fs::exists(to_ + "/convert.progress")) convert(from_, to_, options());
      EXPECT_EQ(directory_bytes(to_), reference);
      fs::remove_all(to_);
      ++n_finished;
    } else {
      EXPECT_THROW(open_source(to_), Error);
    }
  }
  EXPECT_GE(n_killed, 20) << "the machine is too slow for the time this test allows itself";
  RecordProperty("killed", n_killed);
  RecordProperty("finished", n_finished);
  if (!fs::exists(to_)) return;
  convert(from_, to_, options());
  EXPECT_EQ(directory_bytes(to_), reference);
}

TEST_F(ResumeTest, StoppedAtEveryStep) {
  convert(from_, to_, options());
  const auto reference = directory_bytes(to_);
  fs::remove_all(to_);
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

// A file that may not grow behaves as a disk that is full.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(ResumeTest, AFullDiskIsACleanError) {
  convert(from_, to_, options());
  const auto reference = directory_bytes(to_);
  fs::remove_all(to_);
  // So little that nothing can be written, up to so much that only dense.bin does not fit.
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, rlim_t{50000}, rlim_t{300000}}) {
    {
      const FileLimit limit(bytes);
      test::expect_error(Errc::Io, {to_, "File too large", "make room", "resume"},
                         [&] { convert(from_, to_, options()); });
    }
    EXPECT_THROW(open_source(to_), Error);
  }
  convert(from_, to_, options());
  EXPECT_EQ(directory_bytes(to_), reference);
}

}  // namespace
}  // namespace moeflux
