// Runs one command of a tool: in a process group of its own, for a limited time and with a limited
// output, and nothing of it stays behind.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace moeflux::cli {

struct CommandLimits {
  double seconds = 60;
  std::size_t output_bytes = 64 << 10;  // more is read and counted, but not kept
};

struct CommandResult {
  std::string output;     // standard output and standard error as they came
  std::size_t n_cut = 0;  // bytes of it that were not kept
  int exit_code = 0;      // 128 + signal when one ended it
  bool timed_out = false, cancelled = false;
};

// `command` for /bin/sh; `environment` is added to the program's own, as "NAME=value"; `input`
// stands on standard input. `cancelled` is asked every few milliseconds. When the time is over or
// it is cancelled, the whole group is asked to end and soon killed; processes left in the
// background are killed when the command ends. Throws Error(Io) when it cannot be started.
CommandResult run_shell(const std::string& command, const std::vector<std::string>& environment,
                        const std::string& input, const CommandLimits& limits,
                        const std::function<bool()>& cancelled);

}  // namespace moeflux::cli
