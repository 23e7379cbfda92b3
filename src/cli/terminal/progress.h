// Shows how far a long step has come: a bar that redraws itself on a terminal, nothing elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace moeflux::cli {

class ProgressBar {
 public:
  // `shown` false: every call does nothing.
  ProgressBar(std::string label, bool shown);
  ~ProgressBar();  // removes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `detail` stands after the bar: "12.0 of 30.0 MiB".
  void update(std::uint64_t done, std::uint64_t total, const std::string& detail);

 private:
  std::string label_;
  bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_ = start_;
};

}  // namespace moeflux::cli
