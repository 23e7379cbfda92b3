#include "cli/chat/external_editor.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/chat/input.h"
#include "cli/options/environment.h"
#include "cli/terminal/text_input.h"
#include "io/file_set.h"

extern char** environ;  // NOLINT: POSIX names it

namespace moeflux::cli {
namespace {

// A file that is gone when this is.
class DraftFile {
 public:
  explicit DraftFile(const std::string& text) {
    std::error_code error;
    std::filesystem::path directory = std::filesystem::temp_directory_path(error);
    if (error) directory = "/tmp";
    path_ = (directory / "moeflux-XXXXXX.md").string();
    const Descriptor file(::mkstemps(path_.data(), 3));  // for its owner only
    if (file.get() < 0) fail_io("cannot be made");
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        ::unlink(path_.c_str());
        fail_io("cannot be written");
      }
      done += static_cast<std::size_t>(n);
    }
  }
  ~DraftFile() { ::unlink(path_.c_str()); }
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail_io(const char* what) const {
    fail(Errc::Io, "{} {}: {}", path_, what, std::generic_category().message(errno));
  }
  std::string path_;
};

// Keys that end a program are the editor's while it runs.
class IgnoredKeys {
 public:
  IgnoredKeys() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigemptyset(&ignore.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &ignore, &before_[i]);
  }
  ~IgnoredKeys() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  IgnoredKeys(const IgnoredKeys&) = delete;
  IgnoredKeys& operator=(const IgnoredKeys&) = delete;

  static constexpr std::array kSignals{SIGINT, SIGQUIT};

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
};

int run_editor(const std::string& command, const std::string& path) {
  // $EDITOR may have options; the path is never part of what the shell reads.
  std::array<std::string, 5> words{"sh", "-c", command + " \"$1\"", "sh", path};
  std::array<char*, 6> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  posix_spawnattr_t attributes;
  sigset_t defaults;
  ::sigemptyset(&defaults);
  for (const int number : IgnoredKeys::kSignals) ::sigaddset(&defaults, number);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, "/bin/sh", nullptr, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    fail(Errc::Io, "cannot run {}: {}", command, std::generic_category().message(error));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string editor_command() {
  for (const char* name : {"VISUAL", "EDITOR"})
    if (const auto given = environment_value(name)) return *given;
  return "vi";
}

std::string edit_text(const std::string& text, const std::string& command) {
  const DraftFile draft(text);
  int code = 0;
  {
    const IgnoredKeys keys;
    code = run_editor(command, draft.path());
  }
  if (code != 0) {
    fail(Errc::Io, "{} ended with exit code {}; VISUAL and EDITOR name another editor", command,
         code);
  }
  std::string edited = read_text_file(draft.path(), InputAssembler::kMaxBytes);
  check_utf8(edited, "the message");
  while (!edited.empty() && (edited.back() == '\n' || edited.back() == '\r')) edited.pop_back();
  return edited;
}

}  // namespace moeflux::cli
