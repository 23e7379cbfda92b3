// Faults between the kernel and the reader, put in through ReaderOptions::filter.
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>

#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

constexpr std::size_t kFileBytes = (std::size_t{4} << 20) + 777;

class ReaderFaultsTest : public ReaderSuite {
 protected:
  static std::vector<Want> mixed_reads() {
    std::mt19937_64 random(11);
    std::vector<Want> wants;
    for (int i = 0; i < 200; ++i) {
      const std::size_t bytes = 1 + random() % 200000;
      const std::uint64_t offset = random() % (kFileBytes - bytes + 1);
      wants.push_back({0, offset, bytes, i % 2 == 0 ? offset % 4096 : random() % 4096});
    }
    wants.push_back({0, 1, kFileBytes - 1, 0});
    return wants;
  }
};
INSTANTIATE_TEST_SUITE_P(All, ReaderFaultsTest, all_reader_cases(), case_name);

// A random generator that several threads may use.
class SharedRandom {
 public:
  std::uint64_t below(std::uint64_t bound) {
    const std::lock_guard lock(mutex_);
    return random_() % bound;
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_{5};
};

TEST_P(ReaderFaultsTest, ShortReadsAreContinued) {
  add_file(kFileBytes);
  SharedRandom random;
  open({.filter = [&](const KernelRead& read, std::int64_t result) -> std::int64_t {
    if (result <= 512 || random.below(3) == 0) return result;
    const auto kept =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(result))) + 1;
    return read.direct ? std::max<std::int64_t>(512, kept / 512 * 512) : kept;
  }});
  if (IsSkipped()) return;
  expect_all_read(mixed_reads());
  EXPECT_GT(reader_->stats().kernel_reads, 201u);
}

TEST_P(ReaderFaultsTest, ShortReadsInsideABlockAreContinued) {
  add_file(kFileBytes);
  SharedRandom random;
  open({.filter = [&](const KernelRead&, std::int64_t result) -> std::int64_t {
    if (result <= 1) return result;
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(result))) + 1;
  }});
  if (IsSkipped()) return;
  expect_all_read(mixed_reads());
  if (GetParam().direct) {
    EXPECT_GT(reader_->stats().fallbacks, 0u);
  }
}

TEST_P(ReaderFaultsTest, InterruptionsAreInvisible) {
  add_file(kFileBytes);
  SharedRandom random;
  open({.max_retries = 0, .filter = [&](const KernelRead&, std::int64_t result) -> std::int64_t {
          switch (random.below(4)) {
            case 0:
              return -EINTR;
            case 1:
              return -EAGAIN;
            default:
              return result;
          }
        }});
  if (IsSkipped()) return;
  expect_all_read(mixed_reads());
  EXPECT_GT(reader_->stats().retries, 0u);
}

TEST_P(ReaderFaultsTest, EndlessInterruptionsEnd) {
  add_file(8192);
  open({.filter = [](const KernelRead&, std::int64_t) -> std::int64_t { return -EAGAIN; }});
  if (IsSkipped()) return;
  EXPECT_EQ(run({{0, 0, 4096, 0}}), std::vector<int>{EAGAIN});
}

TEST_P(ReaderFaultsTest, ErrorsThatPassAreRetried) {
  add_file(kFileBytes);
  std::mutex mutex;
  std::map<std::uint64_t, int> failures;
  open({.max_retries = 2,
        .filter = [&](const KernelRead& read, std::int64_t result) -> std::int64_t {
          const std::lock_guard lock(mutex);
          return ++failures[read.offset] <= 2 ? -EIO : result;
        }});
  if (IsSkipped()) return;
  expect_all_read({{0, 0, 100000, 0}, {0, 1 << 20, 100000, 0}, {0, 2 << 20, 4096, 4}});
  EXPECT_EQ(reader_->stats().retries, 6u);
}

TEST_P(ReaderFaultsTest, ErrorsThatStayAreReportedOnce) {
  add_file(kFileBytes);
  std::atomic<int> n_asked = 0;
  constexpr std::uint64_t kBad = 1 << 20;
  open({.max_retries = 3,
        .filter = [&](const KernelRead& read, std::int64_t result) -> std::int64_t {
          if (read.offset != kBad) return result;
          ++n_asked;
          return -EIO;
        }});
  if (IsSkipped()) return;
  EXPECT_EQ(run({{0, 0, 4096, 0}, {0, kBad, 8192, 0}, {0, kBad + 8192, 8192, 0}}),
            (std::vector<int>{0, EIO, 0}));
  EXPECT_EQ(n_asked, 4);
  EXPECT_EQ(reader_->stats().failed_ops, 1u);
  EXPECT_EQ(reader_->stats().bytes, 4096u + 8192u);
}

TEST_P(ReaderFaultsTest, OtherErrorsAreNotRetried) {
  add_file(kFileBytes);
  std::atomic<int> n_asked = 0;
  open({.filter = [&](const KernelRead&, std::int64_t) -> std::int64_t {
    ++n_asked;
    return -EBADF;  // as if the descriptor were closed
  }});
  if (IsSkipped()) return;
  EXPECT_EQ(run({{0, 0, 4096, 0}}), std::vector<int>{EBADF});
  EXPECT_EQ(n_asked, 1);
}

TEST_P(ReaderFaultsTest, RefusedDirectReadsGoThroughThePageCache) {
  add_file(kFileBytes);
  open({.filter = [](const KernelRead& read, std::int64_t result) -> std::int64_t {
    return read.direct ? -EINVAL : result;
  }});
  if (IsSkipped()) return;
  expect_all_read(mixed_reads());
  EXPECT_EQ(reader_->stats().fallbacks > 0, GetParam().direct);
}

TEST_P(ReaderFaultsTest, InvalidBufferedReadsAreReported) {
  add_file(8192);
  open({.filter = [](const KernelRead&, std::int64_t) -> std::int64_t { return -EINVAL; }});
  if (IsSkipped()) return;
  EXPECT_EQ(run({{0, 0, 4096, 0}}), std::vector<int>{EINVAL});
}

// An op of many pieces (its pointer needs the bounce buffers) fails once, whichever pieces fail.
TEST_P(ReaderFaultsTest, AnOpOfManyPiecesFailsOnce) {
  add_file(kFileBytes);
  SharedRandom random;
  open({.queue_depth = 3,
        .threads = 3,
        .max_retries = 0,
        .filter = [&](const KernelRead&, std::int64_t result) -> std::int64_t {
          return random.below(3) == 0 ? -EIO : result;
        }});
  if (IsSkipped()) return;
  int n_failed = 0;
  for (const int error : run(std::vector<Want>(60, Want{0, 0, kFileBytes, 1}))) {
    EXPECT_TRUE(error == 0 || error == EIO);
    n_failed += error != 0 ? 1 : 0;
  }
  EXPECT_GT(n_failed, 0);
}

// All kinds of trouble at once: what is reported as read is read right.
TEST_P(ReaderFaultsTest, ChaosNeverGivesWrongBytes) {
  add_file(kFileBytes);
  SharedRandom random;
  open({.queue_depth = 8,
        .threads = 4,
        .max_retries = 1,
        .filter = [&](const KernelRead&, std::int64_t result) -> std::int64_t {
          if (result < 2) return result;
          const std::uint64_t dice = random.below(20);
          if (dice < 2) return -EIO;
          if (dice < 4) return -EINTR;
          if (dice < 5) return -EINVAL;
          if (dice < 10)
            return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(result))) + 1;
          return result;
        }});
  if (IsSkipped()) return;
  int n_read = 0;
  for (const int error : run(mixed_reads())) n_read += error == 0 ? 1 : 0;
  EXPECT_GT(n_read, 50);
}

}  // namespace
}  // namespace moeflux::test
