// convert.progress: which tensors and records of a container under construction are complete, so
// that a conversion that was killed goes on where it was. A text file: one line that says what is
// being made, then one line per completed piece. A line is written only after the bytes it speaks
// of are on the disk; a torn last line is ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/output_file.h"

namespace moeflux {

struct DonePiece {
  int bank = -1;  // -1: a dense tensor
  std::int64_t index = 0;
  std::uint64_t checksum = 0;
  std::string note{};  // what the writer's user wants to know again: printable, no line breaks
};

struct FoundProgress {
  Json header;
  std::vector<DonePiece> pieces;
  std::uint64_t bytes = 0;  // of the lines that are whole
};
// Nothing when there is no such file or it does not begin as one.
std::optional<FoundProgress> read_progress(const std::string& path);

class ProgressLog {
 public:
  // Starts a new log, or goes on behind the first `resume_at` bytes of an old one.
  ProgressLog(const std::string& path, const Json& header);
  ProgressLog(const std::string& path, std::uint64_t resume_at);

  void append(std::span<const DonePiece> pieces);

 private:
  OutputFile file_;
  std::uint64_t end_;
};

}  // namespace moeflux
