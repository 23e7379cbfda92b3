// SIGTERM and SIGINT for a program that has work to finish: the first one is waited for, the second
// one ends the program at once.
#pragma once

namespace moeflux::cli {

// Until it is destroyed, both signals are collected instead of killing the program. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void wait() const;  // until the first one
};

}  // namespace moeflux::cli
