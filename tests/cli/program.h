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
  Outcome finish();

 private:
  void read_once();  // blocks until something arrives on a stream, or a stream ends

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool close_early_;
  Outcome outcome_;
};

// The built program, with the demo model as $MOEFLUX_MODEL.
std::string program_path();
Outcome run_moeflux(const std::vector<std::string>& arguments, const Input& input = {});
Input with_demo_model(Input input = {});

}  // namespace moeflux::test
