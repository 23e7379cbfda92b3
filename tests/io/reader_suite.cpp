#include "io/reader_suite.h"

#include <algorithm>
#include <array>

#include "io/uring_reader.h"

namespace moeflux::test {
namespace {

constexpr std::size_t kGuard = 64;
constexpr char kGuardByte = '\x5a';

// A destination at a chosen alignment with guard bytes on both sides.
class Landing {
 public:
  explicit Landing(const Want& want)
      : memory_(4096 + want.shift + want.bytes + kGuard),
        begin_(4096 + want.shift),
        bytes_(want.bytes) {
    std::memset(memory_.data(), kGuardByte, memory_.size());
  }
  std::span<std::byte> out() const { return {memory_.data() + begin_, bytes_}; }
  bool guards_hold() const {
    const auto is_guard = [](std::byte byte) { return byte == std::byte{kGuardByte}; };
    const std::byte* before = memory_.data() + begin_ - kGuard;
    const std::byte* after = memory_.data() + begin_ + bytes_;
    return std::all_of(before, before + kGuard, is_guard) &&
           std::all_of(after, after + kGuard, is_guard);
  }

 private:
  AlignedBuffer memory_;
  std::size_t begin_;
  std::size_t bytes_;
};

}  // namespace

void ReaderSuite::SetUp() {
  if (GetParam().kind != ReaderKind::Uring) return;
  const UringSetup setup = open_uring(1);
  if (setup.status != UringStatus::Used) {
    GTEST_SKIP() << "SKIP: " << describe_uring(setup.status, setup.error);
  }
}

void ReaderSuite::open(ReaderOptions options) {
  options.kind = GetParam().kind;
  options.direct = GetParam().direct;
  reader_ = make_reader(paths_, options);
  if (GetParam().direct && reader_->info().direct_files == 0) {
    GTEST_SKIP() << "SKIP: the filesystem of " << dir_.path() << " has no direct I/O";
  }
}

std::vector<int> ReaderSuite::run(const std::vector<Want>& wants) {
  std::vector<Landing> landings;
  std::vector<ReadOp> ops;
  for (const Want& want : wants) {
    landings.emplace_back(want);
    ops.push_back({.file = want.file,
                   .offset = want.offset,
                   .out = landings.back().out(),
                   .tag = 1000 + ops.size()});
  }
  reader_->submit(ops);
  std::vector<int> errors(wants.size(), 0);
  std::vector<int> times_reported(wants.size(), 0);
  std::array<ReadResult, 7> results;
  std::size_t left = wants.size();
  while (left > 0) {
    EXPECT_EQ(reader_->in_flight(), left);
    const std::size_t n = reader_->wait(results, true);
    EXPECT_GT(n, 0u);
    if (n == 0) return errors;
    left -= std::min(n, left);
    for (const ReadResult& result : std::span(results).first(n)) {
      const std::size_t i = result.tag - 1000;
      if (i >= wants.size()) {
        ADD_FAILURE() << "unknown tag " << result.tag;
        continue;
      }
      ++times_reported[i];
      errors[i] = result.error;
      EXPECT_EQ(result.bytes, result.error == 0 ? wants[i].bytes : 0);
    }
  }
  EXPECT_EQ(reader_->in_flight(), 0u);
  EXPECT_EQ(reader_->poll(results), 0u);
  for (std::size_t i = 0; i < wants.size(); ++i) {
    const Want& want = wants[i];
    EXPECT_EQ(times_reported[i], 1);
    EXPECT_TRUE(landings[i].guards_hold()) << "offset " << want.offset << " bytes " << want.bytes;
    if (errors[i] != 0 || want.bytes == 0) continue;
    const std::string& content = contents_[static_cast<std::size_t>(want.file)];
    const bool same =
        want.offset + want.bytes <= content.size() &&
        std::memcmp(landings[i].out().data(), content.data() + want.offset, want.bytes) == 0;
    EXPECT_TRUE(same) << "offset " << want.offset << " bytes " << want.bytes << " shift "
                      << want.shift;
    if (!same) return errors;
  }
  return errors;
}

}  // namespace moeflux::test
