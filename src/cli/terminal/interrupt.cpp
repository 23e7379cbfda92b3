#include "cli/terminal/interrupt.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command_line.h"

namespace moeflux::cli {
namespace {

std::atomic<int> n_interrupts{0};
std::atomic<const char*> last_words{nullptr};
static_assert(std::atomic<int>::is_always_lock_free,
              "a signal handler may touch only lock-free atomics");

termios shown_keys{};  // how the terminal was, while keys are hidden
std::atomic<bool> keys_are_hidden{false};

// Only async-signal-safe calls: atomics, tcsetattr, write and _exit.
void on_interrupt(int /*signal*/) {
  if (n_interrupts.fetch_add(1) == 0) return;
  if (keys_are_hidden.load()) ::tcsetattr(STDIN_FILENO, TCSANOW, &shown_keys);
  if (const char* text = last_words.load())
    static_cast<void>(!::write(STDOUT_FILENO, text, std::strlen(text)));
  constexpr char kNewLine = '\n';
  static_cast<void>(!::write(STDERR_FILENO, &kNewLine, 1));
  ::_exit(kInterrupted);
}

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

void set_handler(std::initializer_list<int> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : signals) ::sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  n_interrupts = 0;
  set_handler({SIGINT}, on_interrupt);
}

InterruptGuard::~InterruptGuard() {
  set_handler({SIGINT}, SIG_DFL);
}

HiddenKeys::HiddenKeys() {
  termios changed{};
  if (::tcgetattr(STDIN_FILENO, &changed) != 0) return;
  shown_keys = changed;
  changed.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  keys_are_hidden = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &changed) == 0;
}

HiddenKeys::~HiddenKeys() {
  if (keys_are_hidden.exchange(false)) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &shown_keys);
}

void set_last_words(const char* text) {
  last_words = text;
}

bool interrupted() {
  return n_interrupts.load() > 0;
}

void throw_if_interrupted() {
  if (interrupted()) fail(Errc::Cancelled, "interrupted");
}

StopSignals::StopSignals() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail(Errc::Io, "no pipe for signals: too many open files; allow more with ulimit -n");
  read_end = ends[0];
  write_end = ends[1];
  n_signals = 0;
  set_handler({SIGINT, SIGTERM}, on_signal);
}

StopSignals::~StopSignals() {
  set_handler({SIGINT, SIGTERM}, SIG_DFL);
  ::close(write_end.exchange(-1));
  ::close(read_end);
}

void StopSignals::wait() const {
  char byte;
  while (::read(read_end, &byte, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace moeflux::cli
