#include "cli/scripted_server.h"

#include <chrono>
#include <stdexcept>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace moeflux::test {
namespace {

constexpr int kScriptPatienceMs = 20'000;

void check(bool good) {
  if (!good) throw std::runtime_error("a scripted server cannot listen");
}

bool wait_readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, kScriptPatienceMs) > 0;
}

int listen_local(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  check(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

int listen_tcp(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  socklen_t size = sizeof(address);
  check(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

ScriptedServer::ScriptedServer(Script script, const std::string& socket_path)
    : script_(std::move(script)),
      fd_(socket_path.empty() ? listen_tcp(port_) : listen_local(socket_path)) {
  check(::listen(fd_, 16) == 0);
  thread_ = std::thread([this] { run(); });
}

ScriptedServer::~ScriptedServer() {
  ::shutdown(fd_, SHUT_RDWR);  // wakes accept()
  thread_.join();
  ::close(fd_);
}

void ScriptedServer::run() {
  for (int client; (client = ::accept(fd_, nullptr, nullptr)) >= 0;) {
    serve(client);
    ::close(client);
  }
}

std::string ScriptedServer::read_request(int fd) const {
  std::string request;
  std::size_t wanted = std::string::npos;
  char buffer[4096];
  while (request.size() < wanted) {
    if (!wait_readable(fd)) return request;
    const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
    if (n <= 0) return request;
    request.append(buffer, static_cast<std::size_t>(n));
    const std::size_t head = request.find("\r\n\r\n");
    if (head == std::string::npos) continue;
    const std::size_t length = request.find("Content-Length: ");
    wanted = head + 4 + (length < head ? std::stoul(request.substr(length + 16)) : 0);
  }
  return request;
}

void ScriptedServer::serve(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  const std::string request = read_request(fd);
  if (request.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const ScriptedAnswer answer = script_(request);
  for (const std::string& piece : answer.pieces)
    if (::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
  if (!answer.stays_open) return;
  char byte;
  while (wait_readable(fd) && ::recv(fd, &byte, 1, 0) > 0) {
  }
  const std::lock_guard lock(mutex_);
  ++n_left_;
}

std::vector<std::string> ScriptedServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int ScriptedServer::n_left() const {
  const std::lock_guard lock(mutex_);
  return n_left_;
}

bool ScriptedServer::wait_for_left(int n) const {
  for (int i = 0; i < 5000 && n_left() < n; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return n_left() == n;
}

std::string http_response(int status, const std::string& type, const std::string& body) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}", status,
                     type, body.size(), body);
}

std::string json_response(const std::string& body, int status) {
  return http_response(status, "application/json; charset=utf-8", body);
}

ScriptedAnswer chunked(const std::vector<std::string>& chunks, bool ends) {
  ScriptedAnswer answer;
  answer.pieces.push_back(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const std::string& chunk : chunks)
    answer.pieces.push_back(fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk));
  if (ends) answer.pieces.push_back("0\r\n\r\n");
  return answer;
}

}  // namespace moeflux::test
