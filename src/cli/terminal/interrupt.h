// Signals that ask the program to stop. The first one is counted or waited for, the second one ends
// the program at once.
#pragma once

namespace moeflux::cli {

// For a command that stops at its next step: until it is destroyed, SIGINT (Ctrl-C) is counted
// instead of killing the program. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

bool interrupted();           // whether SIGINT came
void throw_if_interrupted();  // Error(Cancelled)

// What the second one still writes to standard output, to leave the terminal as it was. Null: none.
void set_last_words(const char* text);

// Until it is destroyed, keys that are pressed do not appear on the terminal: what is shown stays
// as it is, and the keys wait for who reads next. The second SIGINT undoes it too. One at a time;
// nothing happens where standard input is no terminal.
class HiddenKeys {
 public:
  HiddenKeys();
  ~HiddenKeys();
  HiddenKeys(const HiddenKeys&) = delete;
  HiddenKeys& operator=(const HiddenKeys&) = delete;
};

// For a server that has work to finish: until it is destroyed, SIGTERM and SIGINT are collected
// instead of killing the program. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void wait() const;  // until the first one
};

}  // namespace moeflux::cli
