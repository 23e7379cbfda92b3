#include "cli/program.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/paths.h"

extern char** environ;

namespace moeflux::test {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    read = ends[0];
    write = ends[1];
  }
};

std::vector<std::string> environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Writes until a reader would have to come first. Returns how much that was.
std::size_t fill_pipe(int descriptor) {
  const std::array<char, 4096> filler{};
  std::size_t n_written = 0;
  const int flags = ::fcntl(descriptor, F_GETFL);
  ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
  // Whole pages first, then single bytes: a pipe with room for one byte is not full.
  for (const std::size_t n : {filler.size(), std::size_t{1}}) {
    for (ssize_t done = 0; (done = ::write(descriptor, filler.data(), n)) > 0;) {
      n_written += static_cast<std::size_t>(done);
    }
  }
  ::fcntl(descriptor, F_SETFL, flags);
  return n_written;
}

// Whether a signal was sent to a process and none of its threads has taken it yet.
bool is_pending(pid_t pid, int number) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("ShdPnd:", 0) != 0) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0;
  }
  return false;  // it has ended
}

void close_end(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

}  // namespace

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const Input& input)
    : close_early_(input.close_stdout_early), reads_stdout_(!input.stdout_is_full) {
  // Standard input is a file: it is there in full whether or not the program reads it.
  const TempDir directory;
  const std::string stdin_path = directory.write("stdin", input.text);
  const Pipe out, err;
  if (input.stdout_is_full) n_filler_ = fill_pipe(out.write);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, stdin_path.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  std::vector<std::string> argument_texts = arguments;
  argument_texts.insert(argument_texts.begin(), path);
  std::vector<std::string> environment_texts = environment(input.env);
  const int result =
      ::posix_spawn(&pid_, path.c_str(), &actions, nullptr, pointers(argument_texts).data(),
                    pointers(environment_texts).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(out.write);
  ::close(err.write);
  out_ = out.read;
  err_ = err.read;
  if (result != 0) throw std::runtime_error("cannot start " + path);
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_end(out_);
  close_end(err_);
}

void Program::read_once() {
  std::array<pollfd, 2> streams{{{reads_stdout_ ? out_ : -1, POLLIN, 0}, {err_, POLLIN, 0}}};
  if (::poll(streams.data(), streams.size(), -1) < 0) return;
  std::array<char, 4096> buffer;
  const auto take = [&](const pollfd& stream, int& descriptor, std::string& text) {
    if (stream.fd < 0 || stream.revents == 0) return;
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      close_end(descriptor);
    }
  };
  take(streams[0], out_, outcome_.out);
  take(streams[1], err_, outcome_.err);
  if (close_early_ && !outcome_.out.empty()) close_end(out_);
}

void Program::wait_for_output() {
  while (out_ >= 0 && outcome_.out.empty()) read_once();
}

void Program::wait_for_message() {
  while (err_ >= 0 && outcome_.err.empty()) read_once();
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

void Program::signal_and_wait(int number) const {
  signal(number);
  while (is_pending(pid_, number)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool Program::ended() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void Program::drain_stdout() {
  reads_stdout_ = true;
}

Outcome Program::finish() {
  while ((reads_stdout_ && out_ >= 0) || err_ >= 0) read_once();
  if (!reads_stdout_) {  // what is in the pipe; nobody writes any more
    reads_stdout_ = true;
    while (out_ >= 0) read_once();
  }
  outcome_.out.erase(0, n_filler_);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  outcome_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome_;
}

std::string program_path() {
  return MOEFLUX_PROGRAM;
}

Input with_demo_model(Input input) {
  static const TempDir cache;  // not the user's own
  input.env.emplace("MOEFLUX_MODEL", source_path("models/demo"));
  input.env.emplace("XDG_CACHE_HOME", cache.path());
  input.env.emplace("XDG_CONFIG_HOME", cache.path());
  for (const char* name : {"MOEFLUX_CONFIG", "MOEFLUX_MODELS", "MOEFLUX_SERVER", "HF_HOME",
                           "HF_HUB_CACHE", "HF_TOKEN", "http_proxy", "all_proxy", "ALL_PROXY"})
    input.env.emplace(name, "");
  return input;
}

Outcome run_moeflux(const std::vector<std::string>& arguments, const Input& input) {
  return Program(program_path(), arguments, with_demo_model(input)).finish();
}

}  // namespace moeflux::test
