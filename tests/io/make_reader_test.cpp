#include "io/make_reader.h"

#include <cstddef>
#include <thread>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "io/uring_reader.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

// As a container does it: io_uring_setup answers `error`. Only for the calling thread, and for as
// long as it lives.
bool forbid_uring(unsigned error) {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_io_uring_setup},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

class MakeReaderTest : public testing::Test {
 protected:
  TempDir dir_;
  std::vector<std::string> paths_{dir_.write("file", std::string(10000, 'x'))};
};

TEST_F(MakeReaderTest, ThePoolCanBeForced) {
  const ReaderInfo info = make_reader(paths_, {.kind = ReaderKind::Pool, .threads = 3})->info();
  EXPECT_EQ(info.name, "pool");
  EXPECT_EQ(info.uring, UringStatus::NotAsked);
  EXPECT_EQ(info.queue_depth, 3);
  EXPECT_EQ(info.direct_files + info.buffered_files, 1);
}

TEST_F(MakeReaderTest, AutoTakesUringWhereItCan) {
  const UringSetup setup = open_uring(8);
  const ReaderInfo info = make_reader(paths_, {.queue_depth = 8})->info();
  EXPECT_EQ(info.uring, setup.status);
  EXPECT_EQ(info.name, setup.status == UringStatus::Used ? "uring" : "pool");
  if (setup.status == UringStatus::Used) {
    EXPECT_EQ(info.queue_depth, 8);
    EXPECT_TRUE(info.files_registered);
  }
}

TEST_F(MakeReaderTest, AutoFallsBackToThePoolAndSaysWhy) {
  std::thread([&] {
    if (!forbid_uring(EPERM)) GTEST_SKIP() << "SKIP: seccomp is not available";
    const auto reader = make_reader(paths_);
    EXPECT_EQ(reader->info().name, "pool");
    EXPECT_EQ(reader->info().uring, UringStatus::Forbidden);
    EXPECT_EQ(reader->info().uring_errno, EPERM);
    std::byte byte{};
    ReadResult result;
    reader->submit(std::vector<ReadOp>{{0, 5000, {&byte, 1}, 4}});
    EXPECT_EQ(reader->wait({&result, 1}, true), 1u);
    EXPECT_EQ(byte, std::byte{'x'});
    expect_error(Errc::Unsupported, {"io_uring", "forbidden", "seccomp", "thread pool"},
                 [&] { make_reader(paths_, {.kind = ReaderKind::Uring}); });
  }).join();
}

TEST_F(MakeReaderTest, AKernelWithoutUringIsTold) {
  std::thread([&] {
    if (!forbid_uring(ENOSYS)) GTEST_SKIP() << "SKIP: seccomp is not available";
    EXPECT_EQ(make_reader(paths_)->info().uring, UringStatus::NotInKernel);
  }).join();
}

TEST_F(MakeReaderTest, OptionsAreChecked) {
  expect_error(Errc::BadInput, {"queue_depth", "0"},
               [&] { make_reader(paths_, {.queue_depth = 0}); });
  expect_error(Errc::BadInput, {"threads", "257"}, [&] { make_reader(paths_, {.threads = 257}); });
  expect_error(Errc::BadInput, {"max_retries"}, [&] { make_reader(paths_, {.max_retries = -1}); });
  expect_error(Errc::NotFound, {"absent"}, [&] { make_reader({dir_.file("absent")}); });
}

TEST_F(MakeReaderTest, AReaderOfNoFilesIsPossible) {
  const auto reader = make_reader({});
  ReadResult result;
  reader->submit(std::vector<ReadOp>{{0, 0, {}, 4}});
  EXPECT_EQ(reader->wait({&result, 1}, true), 1u);
  EXPECT_EQ(result.error, EBADF);
}

TEST(DescribeUring, SaysWhatToDo) {
  EXPECT_NE(describe_uring(UringStatus::Forbidden, EPERM).find("seccomp"), std::string::npos);
  EXPECT_NE(describe_uring(UringStatus::NoMemory, ENOMEM).find("ulimit -l"), std::string::npos);
  EXPECT_NE(describe_uring(UringStatus::NotInKernel, ENOSYS).find("kernel"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::test
