// What every test of a reader needs: files of known random bytes, buffers at chosen alignments
// between guard bytes, and a run that checks that each op is reported exactly once.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "io/make_reader.h"
#include "support/paths.h"

namespace moeflux::test {

inline std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::string bytes(size + sizeof(std::uint64_t), '\0');
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  bytes.resize(size);
  return bytes;
}

struct ReaderCase {
  ReaderKind kind;
  bool direct;
};

inline std::string case_name(const testing::TestParamInfo<ReaderCase>& info) {
  return std::string(info.param.kind == ReaderKind::Uring ? "Uring" : "Pool") +
         (info.param.direct ? "Direct" : "Buffered");
}

inline auto all_reader_cases() {
  return testing::Values(ReaderCase{ReaderKind::Uring, true}, ReaderCase{ReaderKind::Uring, false},
                         ReaderCase{ReaderKind::Pool, true}, ReaderCase{ReaderKind::Pool, false});
}

// One read wanted, and where it goes. The address is a multiple of 4096 plus `shift`.
struct Want {
  int file = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::size_t shift = 0;
};

class ReaderSuite : public testing::TestWithParam<ReaderCase> {
 protected:
  void SetUp() override;

  std::string add_file(std::size_t bytes) {
    const std::string name = "file" + std::to_string(contents_.size());
    contents_.push_back(random_bytes(bytes, 7 + contents_.size()));
    paths_.push_back(dir_.write(name, contents_.back()));
    return paths_.back();
  }
  void open(ReaderOptions options = {});

  // Submits all at once, waits for all, and checks bytes, guards, tags and counts. Returns the
  // errors by position.
  std::vector<int> run(const std::vector<Want>& wants);
  void expect_all_read(const std::vector<Want>& wants) {
    for (const int error : run(wants)) ASSERT_EQ(error, 0) << describe_read_error(error);
  }

  TempDir dir_;
  std::vector<std::string> paths_;
  std::vector<std::string> contents_;
  std::unique_ptr<AsyncReader> reader_;
};

}  // namespace moeflux::test
