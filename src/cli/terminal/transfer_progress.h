// How far a step that moves many bytes has come, how fast, and how long it will still take: a bar
// on a terminal, now and then a line elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/options/general_options.h"
#include "cli/terminal/progress.h"

namespace moeflux::cli {

class TransferProgress {
 public:
  TransferProgress(std::string label, const GeneralOptions& general);

  // The first call says where the step begins: bytes done before it count for neither speed nor
  // time.
  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  const GeneralOptions& general_;
  ProgressBar bar_;
  std::optional<std::uint64_t> first_;
  std::chrono::steady_clock::time_point start_, last_line_;
};

// "0:35", "2:07:10".
std::string format_duration(double seconds);

}  // namespace moeflux::cli
