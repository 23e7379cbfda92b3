// Conversions that run out of disk: a clear error, no model, and a directory in which the same
// command goes on once there is room.
#include <cerrno>
#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/convert.h"
#include "convert/directory_bytes.h"
#include "convert/file_calls.h"
#include "source/model_source.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::directory_bytes;
using test::FileCall;

class FullDiskTest : public testing::Test {
 protected:
  FullDiskTest() {
    convert_undisturbed();
    reference_ = directory_bytes(to_);
    fs::remove_all(to_);
  }

  ConvertOptions options() const {
    ConvertOptions options;
    options.n_threads = 1;
    options.checkpoint_bytes = 50000;
    options.stripes = {{to_, 1}, {to_ + "/other", 1}};
    return options;
  }

  void convert_undisturbed() const {
    const test::FileCallGuard quick;
    convert(from_, to_, options());
  }

  void expect_resumable() const {
    EXPECT_THROW(open_source(to_), Error);
    convert_undisturbed();
    EXPECT_EQ(directory_bytes(to_), reference_);
    fs::remove_all(to_);
  }

  const std::string from_ = test::source_path("tests/fixtures/dsv3-halfsplit");
  test::TempDir dir_;
  std::string to_ = dir_.file("out");
  std::map<std::string, std::string> reference_;
};

// Whichever write it is that no longer fits.
TEST_F(FullDiskTest, AtEveryPoint) {
  int n_calls = 0;
  for (bool failed = true; failed; ++n_calls) {
    ASSERT_LT(n_calls, 2000);
    int n = 0;
    failed = false;
    try {
      const test::FileCallGuard guard([&](const FileCall&) { return n++ >= n_calls ? ENOSPC : 0; });
      convert(from_, to_, options());
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.code(), Errc::Io);
      const std::string message = error.what();
      for (const std::string& part : {dir_.path(), std::string("No space left"),
                                      std::string("make room"), std::string("resume")}) {
        EXPECT_NE(message.find(part), std::string::npos) << part << " is not in " << message;
      }
    }
    if (!failed) break;
    if (fs::exists(to_ + "/moeflux.json")) {  // only the sync of its name failed
      auto bytes = directory_bytes(to_);
      bytes.erase("convert.progress");
      EXPECT_EQ(bytes, reference_);
      convert_undisturbed();
      EXPECT_EQ(directory_bytes(to_), reference_);
      fs::remove_all(to_);
      continue;
    }
    expect_resumable();
  }
  EXPECT_GT(n_calls, 100);
  EXPECT_EQ(directory_bytes(to_), reference_);
}

// One failure that passes is an error too: nothing is skipped.
TEST_F(FullDiskTest, ARefusalLeavesNoDirectory) {
  ConvertOptions refused = options();
  refused.free = [](const std::string&) { return std::uint64_t{0}; };
  const std::string to = to_ + "/not/there/yet";
  test::expect_error(Errc::Io, {"make room"}, [&] { convert(from_, to, refused); });
  EXPECT_FALSE(fs::exists(to_ + "/not"));
}

TEST_F(FullDiskTest, ForAMoment) {
  for (const char* name : {"pwrite", "fdatasync", "fallocate", "ftruncate"}) {
    int n = 0;
    {
      const test::FileCallGuard guard([&](const FileCall& call) {
        return call.name == name && call.path.ends_with(".bin") && n++ == 2 ? EDQUOT : 0;
      });
      test::expect_error(Errc::Io, {to_, "make room", "resume"},
                         [&] { convert(from_, to_, options()); });
    }
    expect_resumable();
  }
}

// A filesystem that cannot reserve space works as well.
TEST_F(FullDiskTest, NoReservations) {
  const test::FileCallGuard guard(
      [](const FileCall& call) { return call.name == "fallocate" ? EOPNOTSUPP : 0; });
  convert(from_, to_, options());
  EXPECT_EQ(directory_bytes(to_), reference_);
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

TEST_F(FullDiskTest, FilesThatMayNotGrow) {
  // So little that nothing can be written, up to so much that only dense.bin does not fit.
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, rlim_t{50000}, rlim_t{300000}}) {
    {
      const FileLimit limit(bytes);
      test::expect_error(Errc::Io, {to_, "File too large", "make room", "resume"},
                         [&] { convert(from_, to_, options()); });
    }
    EXPECT_THROW(open_source(to_), Error);
  }
  expect_resumable();
}

// A filesystem of its own, which nobody else sees and which ends with the process. Mounting takes
// privileges.
int convert_on_small_disk(const std::string& from, const std::string& to, std::string& message) {
  fs::create_directories(to);
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", to.c_str(), "tmpfs", 0, "size=256k") != 0) {
    return 77;
  }
  ConvertOptions options;
  options.n_threads = 1;
  try {
    convert(from, to, options);
    return 1;
  } catch (const Error& error) {
    message = error.what();  // what the check before the work says
  }
  if (message.find("make room") == std::string::npos) return 2;
  options.free = [](const std::string&) { return UINT64_MAX / 2; };
  try {
    convert(from, to, options);
    return 3;
  } catch (const Error& error) {
    message = error.what();
  }
  if (message.find("No space left") == std::string::npos) return 4;
  if (fs::exists(to + "/moeflux.json")) return 5;
  if (::mount("tmpfs", to.c_str(), "tmpfs", MS_REMOUNT, "size=64m") != 0) return 6;
  convert(from, to, options);  // in the same directory, with room
  return open_source(to)->tensors().empty() ? 7 : 0;
}

TEST_F(FullDiskTest, ARealOne) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::string message;
    int code = 70;
    try {
      code = convert_on_small_disk(from_, to_, message);
    } catch (const std::exception& error) {
      message = error.what();
    }
    if (code != 0) static_cast<void>(!::write(STDERR_FILENO, message.data(), message.size()));
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "SKIP: this user cannot mount a filesystem";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace moeflux
