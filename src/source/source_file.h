// A file as extents see it: usually one file on disk; in a striped container a sequence of records
// whose bytes are split over several files, so that one record is read from several drives at once
// (docs/FORMAT.md). Thread-safe: reads are positional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace moeflux {

class SourceFile {
 public:
  struct Stripe {
    File file;
    std::uint64_t bytes_per_record = 0;
  };

  // NOLINTNEXTLINE(google-explicit-constructor): a plain file is the usual source file
  SourceFile(File file);
  // `path` names it in messages. Throws Error when a stripe does not hold exactly its share of the
  // records.
  SourceFile(std::string path, std::uint64_t n_records, std::vector<Stripe> stripes);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  bool striped() const { return stripes_.size() > 1; }

  // The files on disk.
  int n_parts() const { return static_cast<int>(stripes_.size()); }
  const File& part(int index) const { return stripes_[static_cast<std::size_t>(index)].file; }

  // Calls visit(part, offset in it, bytes) for the runs on disk that make up [offset, offset +
  // bytes), in that order.
  template <class Visit>
  void for_each_piece(std::uint64_t offset, std::uint64_t bytes, Visit visit) const;

  // Fills `out`. Throws Error(Io) naming the file on disk.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  std::uint64_t size_ = 0;
  std::uint64_t record_bytes_ = 0;  // of a plain file: all of it
  std::vector<Stripe> stripes_;
};

template <class Visit>
void SourceFile::for_each_piece(std::uint64_t offset, std::uint64_t bytes, Visit visit) const {
  if (!striped()) {
    if (bytes > 0) visit(0, offset, bytes);
    return;
  }
  while (bytes > 0) {
    const std::uint64_t record = offset / record_bytes_;
    std::uint64_t within = offset % record_bytes_;
    int index = 0;
    while (within >= stripes_[static_cast<std::size_t>(index)].bytes_per_record) {
      within -= stripes_[static_cast<std::size_t>(index)].bytes_per_record;
      ++index;
    }
    const std::uint64_t share = stripes_[static_cast<std::size_t>(index)].bytes_per_record;
    const std::uint64_t run = share - within < bytes ? share - within : bytes;
    visit(index, record * share + within, run);
    offset += run;
    bytes -= run;
  }
}

}  // namespace moeflux
