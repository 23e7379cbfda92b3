#include "cli/service_manager.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/options/environment.h"
#include "cli/terminal/terminal.h"
#include "io/file_set.h"

namespace moeflux::cli {
namespace {

constexpr int kFirstSocket = 3;
constexpr int kMaxSockets = 64;

void notify(const std::string& message) {
  const std::optional<std::string> path = environment_value("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (!path || path->size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path->data(), path->size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path->size());
  if (socket.get() < 0) return;
  [[maybe_unused]] const ssize_t n =
      ::sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace

std::vector<int> inherited_sockets() {
  const std::optional<std::string> pid = environment_value("LISTEN_PID");
  const std::optional<std::string> count = environment_value("LISTEN_FDS");
  // Meant for another process where the number is another's.
  if (!pid || !count || to_number<pid_t>(*pid) != ::getpid()) return {};
  const int n = to_number<int>(*count).value_or(-1);
  if (n < 0 || n > kMaxSockets)
    fail(Errc::BadInput, "LISTEN_FDS is \"{}\", which is no number of sockets", safe_line(*count));
  std::vector<int> sockets;
  for (int socket = kFirstSocket; socket < kFirstSocket + n; ++socket) {
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);
    sockets.push_back(socket);
  }
  return sockets;
}

void notify_ready(std::string_view status) {
  notify(fmt::format("READY=1\nSTATUS={}", safe_line(status)));
}

void notify_status(std::string_view status) {
  notify(fmt::format("STATUS={}", safe_line(status)));
}

void notify_stopping() {
  notify("STOPPING=1");
}

}  // namespace moeflux::cli
