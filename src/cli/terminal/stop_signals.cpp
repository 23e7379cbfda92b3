#include "cli/terminal/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace moeflux::cli {
namespace {

std::atomic<int> n_signals{0};
std::atomic<int> write_end{-1};
int read_end = -1;

// Only async-signal-safe calls: atomics, write and _exit.
void on_signal(int signal) {
  if (n_signals.fetch_add(1) > 0) ::_exit(128 + signal);
  const int saved = errno;
  const char byte = 1;
  static_cast<void>(!::write(write_end.load(), &byte, 1));
  errno = saved;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail(Errc::Io, "no pipe for signals: too many open files; allow more with ulimit -n");
  read_end = ends[0];
  write_end = ends[1];
  n_signals = 0;
  set_handler(on_signal);
}

StopSignals::~StopSignals() {
  set_handler(SIG_DFL);
  ::close(write_end.exchange(-1));
  ::close(read_end);
}

void StopSignals::wait() const {
  char byte;
  while (::read(read_end, &byte, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace moeflux::cli
