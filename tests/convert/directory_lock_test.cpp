#include "convert/directory_lock.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

TEST(DirectoryLock, OnlyOneHoldsIt) {
  const test::TempDir dir;
  {
    const DirectoryLock first(dir.file(""));
    test::expect_error(Errc::BadInput, {dir.file(""), "another conversion"},
                       [&] { DirectoryLock second(dir.file("")); });
  }
  const DirectoryLock third(dir.file(""));
}

TEST(DirectoryLock, GoesWithTheProcess) {
  const test::TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const DirectoryLock lock(dir.file(""));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const DirectoryLock lock(dir.file(""));
}

TEST(DirectoryLock, NeedsADirectory) {
  test::expect_error(Errc::Io, {"/no/such/place"}, [] { DirectoryLock lock("/no/such/place"); });
}

}  // namespace
}  // namespace moeflux
