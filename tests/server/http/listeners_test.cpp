// Sockets that another program has opened, as systemd does for a service.
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/echo_server.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

int tcp_socket(std::uint32_t address, bool listens = true) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(address);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  EXPECT_EQ(listens ? ::listen(socket, 8) : 0, 0);
  return socket;
}

int local_socket(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  std::memcpy(where.sun_path, path.data(), path.size());
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  EXPECT_EQ(::listen(socket, 8), 0);
  return socket;
}

int port_of(int socket) {
  sockaddr_in where{};
  socklen_t size = sizeof(where);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&where), &size);
  return ntohs(where.sin_port);
}

TEST(InheritedSocketsTest, AllOfThemAreAnswered) {
  const TempDir directory;
  const std::string path = directory.file("here");
  const int first = tcp_socket(INADDR_LOOPBACK), second = tcp_socket(INADDR_LOOPBACK);
  const int second_port = port_of(second);
  {
    EchoServer server(HttpServerOptions{.host = "192.0.2.1",
                                        .port = 1,
                                        .n_workers = 2,
                                        .sockets = {first, second, local_socket(path)}});
    EXPECT_EQ(get(server.port(), "/1").body, "GET /1 0");
    EXPECT_EQ(get(second_port, "/2").body, "GET /2 0");
    HttpClient local(path);
    local.get("/3");
    EXPECT_EQ(local.read().body, "GET /3 0");
    EXPECT_EQ(server->urls(),
              (std::vector<std::string>{"http://127.0.0.1:" + std::to_string(server.port()),
                                        "http://127.0.0.1:" + std::to_string(second_port),
                                        "unix:" + path}));
  }
  EXPECT_TRUE(std::filesystem::exists(path)) << "it belongs to whoever opened it";
}

TEST(InheritedSocketsTest, WhereTheyListen) {
  const int near = tcp_socket(INADDR_LOOPBACK), far = tcp_socket(INADDR_ANY);
  EXPECT_EQ(listening_host(near), "127.0.0.1");
  EXPECT_EQ(listening_host(far), "0.0.0.0");
  const TempDir directory;
  const int local = local_socket(directory.file("x"));
  EXPECT_EQ(listening_host(local), "");
  for (const int each : {near, far, local}) ::close(each);
}

TEST(InheritedSocketsTest, OthersAreRefused) {
  const int silent = tcp_socket(INADDR_LOOPBACK, /*listens=*/false);
  const int datagrams = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  expect_error(Errc::Io, {"does not listen", "Accept=no"}, [&] { listening_host(silent); });
  expect_error(Errc::Io, {"ListenStream="}, [&] { listening_host(datagrams); });
  expect_error(Errc::Io, {"(descriptor 999)", "is none"}, [&] { listening_host(999); });
  expect_error(Errc::Io, {"does not listen"},
               [&] { EchoServer server(HttpServerOptions{.n_workers = 1, .sockets = {silent}}); });
  for (const int each : {silent, datagrams}) ::close(each);
}

}  // namespace
}  // namespace moeflux::test
