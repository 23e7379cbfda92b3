#include "server/http_client.h"

#include <algorithm>
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

constexpr int kPatienceMs = 20'000;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void parse_head(const std::string& head, ClientResponse& response) {
  std::size_t at = head.find("\r\n");
  if (head.size() > 12) response.status = std::stoi(head.substr(9, 3));
  while (at != std::string::npos && at + 2 < head.size()) {
    const std::size_t end = head.find("\r\n", at + 2);
    const std::string line = head.substr(at + 2, end - at - 2);
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos)
      response.headers[lower(line.substr(0, colon))] = line.substr(colon + 2);
    at = end;
  }
}

}  // namespace

std::vector<std::string> ClientResponse::events() const {
  std::vector<std::string> found;
  std::size_t at = 0;
  while (at < body.size()) {
    const std::size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string event = body.substr(at, end - at);
    if (event.rfind("data: ", 0) == 0) found.push_back(event.substr(6));
    at = end + 2;
  }
  return found;
}

HttpClient::HttpClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int one = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close();
    throw std::runtime_error("cannot connect");
  }
}

HttpClient::HttpClient(const std::string& socket_path)
    : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close();
    throw std::runtime_error("cannot connect");
  }
}

void HttpClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void HttpClient::end_sending() {
  ::shutdown(fd_, SHUT_WR);
}

void HttpClient::reset() {
  const linger at_once{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close();
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void HttpClient::get(const std::string& path, const std::string& headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
}

void HttpClient::post(const std::string& path, const std::string& body,
                      const std::string& headers) {
  send(
      fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  "Content-Length: {}\r\n{}\r\n{}",
                  path, body.size(), headers, body));
}

bool HttpClient::receive() {
  pollfd ready{fd_, POLLIN, 0};
  if (::poll(&ready, 1, kPatienceMs) <= 0) return false;
  char buffer[65536];
  const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  received_.append(buffer, static_cast<std::size_t>(n));
  return true;
}

std::string HttpClient::read_until(std::string_view end) {
  std::size_t found;
  while ((found = received_.find(end)) == std::string::npos) {
    if (!receive()) return std::exchange(received_, "");
  }
  std::string taken = received_.substr(0, found + end.size());
  received_.erase(0, taken.size());
  return taken;
}

ClientResponse HttpClient::read_head() {
  ClientResponse response;
  do {
    response = {};
    parse_head(read_until("\r\n\r\n"), response);
  } while (response.status == 100);
  return response;
}

ClientResponse HttpClient::read() {
  ClientResponse response = read_head();
  if (response.status == 0) return response;
  if (response.headers.contains("transfer-encoding")) {
    while (true) {
      const std::string line = read_until("\r\n");
      if (line.size() < 3) return response;
      const std::size_t size = std::stoul(line, nullptr, 16);
      while (received_.size() < size + 2) {
        if (!receive()) return response;
      }
      response.body += received_.substr(0, size);
      received_.erase(0, size + 2);
      if (size > 0) continue;
      response.complete = true;
      return response;
    }
  }
  const auto length = response.headers.find("content-length");
  const std::size_t size =
      length == response.headers.end() ? std::string::npos : std::stoul(length->second);
  while (received_.size() < size) {
    if (!receive()) break;
  }
  response.complete = size == std::string::npos || received_.size() >= size;
  response.body = received_.substr(0, size);
  received_.erase(0, response.body.size());
  return response;
}

bool HttpClient::wait_for_close(std::chrono::milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (std::chrono::steady_clock::now() < end) {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    char buffer[65536];
    if (::recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
  }
  return false;
}

ClientResponse get(int port, const std::string& path, const std::string& headers) {
  HttpClient client(port);
  client.get(path, headers);
  return client.read();
}

ClientResponse post(int port, const std::string& path, const Json& body,
                    const std::string& headers) {
  HttpClient client(port);
  client.post(path, body.is_string() ? body.get<std::string>() : dump_json(body), headers);
  return client.read();
}

}  // namespace moeflux::test
