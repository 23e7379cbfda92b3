#include "cli/terminal/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstring>

#include <unistd.h>

#include "base/error.h"
#include "cli/command_line.h"

namespace moeflux::cli {
namespace {

std::atomic<int> n_interrupts{0};
std::atomic<const char*> last_words{nullptr};
static_assert(std::atomic<int>::is_always_lock_free,
              "a signal handler may touch only lock-free atomics");

// Only async-signal-safe calls: an atomic, write and _exit.
void on_interrupt(int /*signal*/) {
  if (n_interrupts.fetch_add(1) == 0) return;
  if (const char* text = last_words.load())
    static_cast<void>(!::write(STDOUT_FILENO, text, std::strlen(text)));
  constexpr char kNewLine = '\n';
  static_cast<void>(!::write(STDERR_FILENO, &kNewLine, 1));
  ::_exit(kInterrupted);
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  n_interrupts = 0;
  set_handler(on_interrupt);
}

InterruptGuard::~InterruptGuard() {
  set_handler(SIG_DFL);
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

}  // namespace moeflux::cli
