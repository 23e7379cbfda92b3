// Runs the built program as a user would: arguments, standard input and environment in; output,
// messages and exit code out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace moeflux::test {

struct Outcome {
  int exit_code = -1;  // 128 + signal when a signal ended it, as a shell says it
  std::string out;
  std::string err;
};

struct Input {
  std::string text;                          // on standard input
  std::map<std::string, std::string> env{};  // "" removes a variable
  bool close_stdout_early = false;           // stop reading after the first bytes, as `head` does
  // Standard output is a pipe that is full from the start: whoever writes to it waits until
  // drain_stdout(). What filled it is not part of the outcome.
  bool stdout_is_full = false;
};

// A running program. One test drives it from one thread.
class Program {
 public:
  Program(const std::string& path, const std::vector<std::string>& arguments,
          const Input& input = {});
  ~Program();  // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Blocks until standard output has at least one byte, or ends.
  void wait_for_output();
  void wait_for_message();  // the same for standard error
  void signal(int number) const;
  // Returns when the program has taken the signal: the next one of the same number is another one.
  void signal_and_wait(int number) const;
  bool ended() const;   // whether it has, without waiting
  void drain_stdout();  // from now on a full standard output is read
  Outcome finish();     // reads until the program ends

 private:
  void read_once();  // blocks until something arrives on a stream, or a stream ends

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool close_early_;
  bool reads_stdout_;
  std::size_t n_filler_ = 0;  // bytes of standard output that are ours
  Outcome outcome_;
};

// The built program, with the demo model as $MOEFLUX_MODEL.
std::string program_path();
Outcome run_moeflux(const std::vector<std::string>& arguments, const Input& input = {});
Input with_demo_model(Input input = {});

}  // namespace moeflux::test
