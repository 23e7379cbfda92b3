// Runs one command of a tool: in a process group of its own, for a limited time and with a limited
// output, and nothing of it stays behind.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/chat/tools.h"
#include "io/file_set.h"

extern char** environ;  // NOLINT: POSIX names it

namespace moeflux::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 20;
constexpr std::chrono::milliseconds kGrace{500};  // between asking to end and killing

[[noreturn]] void cannot_run(const char* what, int error) {
  fail(Errc::Io, "cannot run a command: {}: {}", what, std::generic_category().message(error));
}

// A file in memory: it is there in full whether or not the command reads it.
Descriptor input_file(const std::string& text) {
  Descriptor file(::memfd_create("input", MFD_CLOEXEC));
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::lseek(file.get(), 0, SEEK_SET) != 0) {
    cannot_run("its input", errno);
  }
  return file;
}

pid_t start(const std::string& command, const std::vector<std::string>& environment, int input,
            int output) {
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(*entry);
  std::vector<std::string> added = environment;
  for (std::string& entry : added) variables.push_back(entry.data());
  variables.push_back(nullptr);
  std::array<std::string, 3> words{"sh", "-c", command};
  std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGINT);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) cannot_run("/bin/sh", error);
  return pid;
}

// A process group and what comes out of it.
class Running {
 public:
  Running(pid_t pid, int output, const CommandLimits& limits)
      : pid_(pid), output_(output), limits_(limits) {}
  ~Running() {
    if (pid_ > 0) end_now();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  CommandResult wait(const std::function<bool()>& cancelled) {
    const Clock::time_point start = Clock::now();
    Clock::time_point asked{};
    while (!has_ended()) {
      read_some(kPollMs);
      const bool late = seconds_since(start) > limits_.seconds;
      if (asked == Clock::time_point() && (late || (cancelled && cancelled()))) {
        result_.timed_out = late;
        result_.cancelled = !late;
        asked = Clock::now();
        ::kill(-pid_, SIGTERM);
      } else if (asked != Clock::time_point() && Clock::now() - asked > kGrace) {
        ::kill(-pid_, SIGKILL);
      }
    }
    while (read_some(0)) {
    }
    end_now();
    return std::move(result_);
  }

 private:
  bool has_ended() const {  // it stays a zombie, so that its group cannot be another one's yet
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  void end_now() {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  bool read_some(int timeout_ms) {  // false: nothing came
    pollfd stream{at_end_ ? -1 : output_, POLLIN, 0};
    if (::poll(&stream, 1, timeout_ms) <= 0) return false;
    std::array<char, 16384> buffer{};
    const ssize_t n = ::read(output_, buffer.data(), buffer.size());
    if (n <= 0) {
      at_end_ = n == 0 || (errno != EINTR && errno != EAGAIN);
      return false;
    }
    const auto size = static_cast<std::size_t>(n);
    const std::size_t kept = std::min(size, limits_.output_bytes - result_.output.size());
    result_.output.append(buffer.data(), kept);
    result_.n_cut += size - kept;
    return true;
  }

  pid_t pid_;
  int output_;
  CommandLimits limits_;
  bool at_end_ = false;
  CommandResult result_;
};

}  // namespace

CommandResult run_shell(const std::string& command, const std::vector<std::string>& environment,
                        const std::string& input, const CommandLimits& limits,
                        const std::function<bool()>& cancelled) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) cannot_run("a pipe", errno);
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  Descriptor input_end = input_file(input);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  Running running(start(command, environment, input_end.get(), write_end.get()), read_end.get(),
                  limits);
  write_end = Descriptor();
  input_end = Descriptor();
  return running.wait(cancelled);
}

}  // namespace moeflux::cli
