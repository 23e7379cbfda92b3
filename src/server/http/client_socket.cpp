#include "server/http/client_socket.h"

#include <array>

#include <arpa/inet.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <netinet/in.h>
#include <sys/socket.h>

namespace moeflux {

// Every co_await stands in a statement of its own: see connection.cpp.
namespace asio = boost::asio;

namespace {

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr unsigned char kHandshake = 22;  // the first byte of every TLS connection

std::string peer_of(const ClientSocket::Plain& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "unknown";
  std::array<char, INET6_ADDRSTRLEN> text{};
  sockaddr_storage address{};
  std::memcpy(&address, endpoint.data(), std::min(endpoint.size(), sizeof(address)));
  const void* bytes = nullptr;
  if (address.ss_family == AF_INET)
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  else if (address.ss_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  else
    return "unix";
  ::inet_ntop(address.ss_family, bytes, text.data(), text.size());
  return text.data();
}

}  // namespace

ClientSocket::ClientSocket(Plain socket, const TlsContext& tls)
    : socket_(std::move(socket)), peer_(peer_of(socket_)) {
  if (tls) tls_ = std::make_unique<asio::ssl::stream<Plain&>>(socket_, *tls);
}

asio::awaitable<ClientSocket::Greeting> ClientSocket::greet() {
  if (!tls_) co_return Greeting::Tls;
  const auto [wait_error] = co_await socket_.async_wait(Plain::wait_read, kUse);
  if (wait_error) co_return Greeting::Failed;
  unsigned char first = 0;
  if (::recv(socket_.native_handle(), &first, 1, MSG_PEEK) != 1) co_return Greeting::Failed;
  if (first != kHandshake) co_return Greeting::Plain;
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kUse);
  co_return error ? Greeting::Failed : Greeting::Tls;
}

asio::awaitable<ClientSocket::Transfer> ClientSocket::read_some(asio::mutable_buffer buffer) {
  if (tls_) {
    const auto [error, n] = co_await tls_->async_read_some(buffer, kUse);
    co_return Transfer{error, n};
  }
  const auto [error, n] = co_await socket_.async_read_some(buffer, kUse);
  co_return Transfer{error, n};
}

asio::awaitable<ClientSocket::Transfer> ClientSocket::write_some(asio::const_buffer buffer) {
  if (tls_) {
    const auto [error, n] = co_await tls_->async_write_some(buffer, kUse);
    co_return Transfer{error, n};
  }
  const auto [error, n] = co_await socket_.async_write_some(buffer, kUse);
  co_return Transfer{error, n};
}

asio::awaitable<ClientSocket::Transfer> ClientSocket::write_plain(asio::const_buffer buffer) {
  const auto [error, n] = co_await socket_.async_write_some(buffer, kUse);
  co_return Transfer{error, n};
}

asio::awaitable<ClientSocket::Transfer> ClientSocket::read_plain(asio::mutable_buffer buffer) {
  const auto [error, n] = co_await socket_.async_read_some(buffer, kUse);
  co_return Transfer{error, n};
}

asio::awaitable<void> ClientSocket::end_sending() {
  if (tls_) {
    const auto [unused] = co_await tls_->async_shutdown(kUse);
    (void)unused;
  }
  boost::system::error_code ignored;
  socket_.shutdown(Plain::shutdown_send, ignored);
}

asio::awaitable<void> ClientSocket::wait_for_reset() {
  const auto [unused] = co_await socket_.async_wait(Plain::wait_error, kUse);
  (void)unused;
}

void ClientSocket::cancel() {
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void ClientSocket::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace moeflux
