// Ctrl-C: the first one asks the command to stop at its next step, the second one ends the program
// at once.
#pragma once

namespace moeflux::cli {

// Until it is destroyed, SIGINT is counted instead of killing the program. One at a time.
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

}  // namespace moeflux::cli
