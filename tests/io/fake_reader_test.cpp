#include "support/fake_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

class FakeReaderTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1000;

  void submit(FakeReader& reader, int n) {
    memory_.assign(static_cast<std::size_t>(n) * kBytes, std::byte{});
    std::vector<ReadOp> ops;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i) {
      ops.push_back({0, i * 10, out(i), i});
    }
    reader.submit(ops);
  }
  std::span<std::byte> out(std::uint64_t i) { return {memory_.data() + i * kBytes, kBytes}; }
  int wrong_bits(std::uint64_t i) {
    int n = 0;
    for (std::size_t at = 0; at < kBytes; ++at) {
      const auto want = static_cast<unsigned char>(content_[i * 10 + at]);
      n += std::popcount(
          static_cast<unsigned char>(std::to_integer<unsigned char>(out(i)[at]) ^ want));
    }
    return n;
  }
  std::vector<ReadResult> take_all(FakeReader& reader) {
    std::vector<ReadResult> all;
    std::array<ReadResult, 3> some;
    while (reader.in_flight() > 0) {
      const std::size_t n = reader.wait(some, true);
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
    }
    return all;
  }
  std::vector<std::uint64_t> order(std::uint64_t seed) {
    FakeReader reader(paths_, {.seed = seed});
    submit(reader, 50);
    std::vector<std::uint64_t> tags;
    for (const ReadResult& result : take_all(reader)) {
      EXPECT_EQ(result.error, 0);
      EXPECT_EQ(wrong_bits(result.tag), 0);
      tags.push_back(result.tag);
    }
    return tags;
  }

  TempDir dir_;
  std::string content_ = random_bytes(5000, 2);
  std::vector<std::string> paths_{dir_.write("file", content_)};
  std::vector<std::byte> memory_;
};

TEST_F(FakeReaderTest, TheSeedDecidesTheOrder) {
  const auto first = order(1);
  EXPECT_EQ(first, order(1));
  EXPECT_NE(first, order(2));
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(sorted[i], i);
}

TEST_F(FakeReaderTest, FailsWhatItIsTold) {
  FakeReader reader(paths_);
  reader.fail_op(1, EIO);
  reader.fail_when([](const ReadOp& op) { return op.tag == 3 ? ENOMEM : 0; });
  submit(reader, 5);
  for (const ReadResult& result : take_all(reader)) {
    EXPECT_EQ(result.error, result.tag == 1 ? EIO : result.tag == 3 ? ENOMEM : 0);
    EXPECT_EQ(wrong_bits(result.tag) == 0, result.error == 0);
  }
  EXPECT_EQ(reader.stats().failed_ops, 2u);
  EXPECT_EQ(reader.n_submitted(), 5u);
  EXPECT_EQ(reader.log()[3].tag, 3u);
}

TEST_F(FakeReaderTest, FailsWhatARealReaderFails) {
  FakeReader reader(paths_);
  std::byte byte{};
  reader.submit(std::vector<ReadOp>{{2, 0, {&byte, 1}, EBADF}, {0, 5000, {&byte, 1}, 0}});
  for (const ReadResult& result : take_all(reader)) {
    EXPECT_EQ(result.error, result.tag == EBADF ? EBADF : kEndOfFile);
  }
}

TEST_F(FakeReaderTest, FlipsOneBit) {
  FakeReader reader(paths_);
  reader.flip_bit(2, 12345);
  submit(reader, 4);
  take_all(reader);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(wrong_bits(i), i == 2 ? 1 : 0);
}

TEST_F(FakeReaderTest, HoldsBack) {
  FakeReader reader(paths_, {.max_delay = 1});
  reader.hold(true);
  submit(reader, 4);
  std::array<ReadResult, 8> results;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(reader.poll(results), 0u);
  EXPECT_THROW(reader.wait(results, true), std::logic_error);
  EXPECT_GT(wrong_bits(0), 0) << "memory must not look finished before the op is reported";
  reader.hold(false);
  EXPECT_EQ(reader.wait(results, true), 4u);
  EXPECT_EQ(reader.in_flight(), 0u);
}

TEST_F(FakeReaderTest, CancelsWhatHasNotStarted) {
  FakeReader reader(paths_, {.max_delay = 100});
  submit(reader, 3);
  std::array<ReadResult, 8> results;
  reader.poll(results);
  std::byte byte{};
  reader.submit(std::vector<ReadOp>{{0, 0, {&byte, 1}, 99}});
  reader.cancel_waiting();
  for (const ReadResult& result : take_all(reader)) {
    EXPECT_EQ(result.error, result.tag == 99 ? ECANCELED : 0);
  }
}

}  // namespace
}  // namespace moeflux::test
