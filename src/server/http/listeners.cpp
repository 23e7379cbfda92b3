#include "server/http/listeners.h"

#include <array>
#include <cstring>

#include <arpa/inet.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"

namespace moeflux {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using AnyProtocol = asio::generic::stream_protocol;

namespace {

constexpr std::string_view kSocketSuffix = ".sock";

bool is_socket_path(const std::string& host) {
  return host.size() > kSocketSuffix.size() && host.ends_with(kSocketSuffix);
}

[[noreturn]] void cannot_listen(const HttpServerOptions& options,
                                const boost::system::error_code& error) {
  if (error == asio::error::address_in_use) {
    fail(Errc::Io,
         "port {} of {} is taken, perhaps by another moeflux serve; choose one with --port, or 0 "
         "for any that is free",
         options.port, options.host);
  }
  if (error == asio::error::access_denied) {
    fail(Errc::Io, "port {} needs rights this user has not; choose one above 1023 with --port",
         options.port);
  }
  fail(Errc::Io, "cannot listen on {} port {}: {}{}", options.host, options.port, error.message(),
       error == asio::error::no_descriptors ? "; allow more with ulimit -n" : "");
}

Listener listen_tcp(asio::io_context& io, const HttpServerOptions& options) {
  boost::system::error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    fail(Errc::Io, "cannot listen on {}: {}", options.host, error.message());
  tcp::acceptor acceptor(io);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) cannot_listen(options, error);
  const int port = acceptor.local_endpoint().port();
  const AnyProtocol protocol(endpoint.protocol());
  return {.acceptor = StreamAcceptor(io, protocol, acceptor.release()),
          .is_local = false,
          .host = options.host,
          .port = port};
}

// A socket left behind by a program that was killed is replaced; one that answers is not.
Listener listen_local(asio::io_context& io, const std::string& path) {
  boost::system::error_code error;
  const stream_protocol::endpoint endpoint(path);
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    stream_protocol::socket probe(io);
    probe.connect(endpoint, error);
    if (!S_ISSOCK(info.st_mode) || !error)
      fail(Errc::Io, "{}: is taken; name another socket with --host", path);
    ::unlink(path.c_str());
  }
  stream_protocol::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(Errc::Io, "{}: cannot listen there: {}", path, error.message());
  const AnyProtocol protocol(endpoint.protocol());
  return {
      .acceptor = StreamAcceptor(io, protocol, acceptor.release()), .is_local = true, .host = path};
}

int socket_option(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      address.ss_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  ::inet_ntop(address.ss_family, bytes, text.data(), text.size());
  return text.data();
}

struct SocketPlace {
  int family = AF_UNSPEC;
  std::string host;  // or the path of a UNIX socket
  int port = 0;
};

// Another program may hand over anything: what is no listening socket of a stream is refused.
SocketPlace place_of(int socket) {
  const auto refuse = [&](std::string_view why) {
    fail(Errc::Io, "the socket that was handed over (descriptor {}) {}", socket, why);
  };
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) refuse("is none");
  if (socket_option(socket, SO_TYPE) != SOCK_STREAM) refuse("is none of streams (ListenStream=)");
  if (socket_option(socket, SO_ACCEPTCONN) != 1)
    refuse("does not listen; a socket unit needs Accept=no");
  SocketPlace place{.family = address.ss_family, .host = {}};
  if (place.family == AF_UNIX) {
    const char* path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
    if (size > sizeof(sa_family_t))
      place.host = std::string(path, ::strnlen(path, sizeof(sockaddr_un::sun_path)));
  } else if (place.family == AF_INET || place.family == AF_INET6) {
    place.host = address_text(address);
    place.port =
        ntohs(place.family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                      : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  } else {
    refuse("is neither of TCP nor a UNIX socket");
  }
  return place;
}

Listener take_over(asio::io_context& io, int socket) {
  const SocketPlace place = place_of(socket);
  Listener listener{.acceptor = StreamAcceptor(io),
                    .is_local = place.family == AF_UNIX,
                    .host = place.host,
                    .port = place.port,
                    .is_ours = false};
  const int protocol = listener.is_local ? 0 : static_cast<int>(IPPROTO_TCP);
  listener.acceptor.assign(AnyProtocol(place.family, protocol), socket);
  return listener;
}

}  // namespace

std::vector<Listener> open_listeners(asio::io_context& io, const HttpServerOptions& options) {
  std::vector<Listener> listeners;
  for (const int socket : options.sockets) listeners.push_back(take_over(io, socket));
  if (listeners.empty()) {
    listeners.push_back(is_socket_path(options.host) ? listen_local(io, options.host)
                                                     : listen_tcp(io, options));
  }
  return listeners;
}

std::string listening_host(int socket) {
  const SocketPlace place = place_of(socket);
  return place.family == AF_UNIX ? "" : place.host;
}

}  // namespace moeflux
