// Listens, reads requests within limits, and has them handled.
//
// One thread reads and writes the sockets. Handlers run on a few workers, and their answers may
// come later from any thread (exchange.h). A client that sends too much, too slowly or nonsense
// gets the status that says so and loses its connection; no other client notices. Boost is used
// only by this class and by Connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/access_log.h"
#include "server/http/exchange.h"
#include "server/http/tls_files.h"

namespace moeflux {

struct HttpLimits {
  std::size_t header_bytes = 64 << 10;
  std::uint64_t body_bytes = 64 << 20;
  std::size_t queue_bytes = 16 << 20;  // of an answer that the client does not take
  std::size_t connections = 2048;
  std::chrono::milliseconds idle{75'000};    // between requests
  std::chrono::milliseconds header{10'000};  // from its first byte to its last
  std::chrono::milliseconds body{15'000};    // to the next piece of it
  std::chrono::milliseconds write{60'000};   // for the client to take a piece of the answer
  std::chrono::milliseconds ping{15'000};    // silence in a stream before it is broken
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, a name, or the path of a UNIX socket (*.sock)
  int port = 9099;                 // 0: any that is free
  int n_workers = 4;
  HttpLimits limits = {};
  RequestMemoryPtr memory = {};      // null: not counted
  std::vector<int> sockets = {};     // that listen already; host and port are then not opened
  std::optional<TlsFiles> tls = {};  // for clients that do not come through a UNIX socket
  AccessLog log = {};                // called on a worker
};

// Runs on a worker; must not throw.
using HttpEntry = std::function<void(HttpRequest, ExchangePtr)>;

// Where a socket listens that another program has opened: "127.0.0.1", "" for a UNIX socket.
// Throws Error(Io) where it does not listen.
std::string listening_host(int socket);

class HttpServer {
 public:
  // Listens when it returns. Throws Error(Io) that says what to do when the port is taken, or when
  // too few files may be open. Raises the soft limit on them to what the connections need; takes
  // fewer where it cannot.
  // `error_form` writes the errors found before the entry is called, such as 413.
  HttpServer(HttpServerOptions options, HttpEntry entry, ErrorForm error_form);
  ~HttpServer();  // closes the connections that are left
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::vector<std::string> urls() const;  // "http://127.0.0.1:9099", "unix:/run/moeflux.sock"
  std::string url() const { return urls().front(); }
  int port() const;  // of the first; 0 for a UNIX socket
  // What clients will not like about the certificate; "".
  std::string certificate_warning() const;
  std::size_t n_connections() const;

  // Runs `work` on a worker. Any thread; not after the server has gone.
  void post(std::function<void()> work);

  // No new connections and requests; answers being given go on.
  void drain();
  // Whether no connection is left, waiting so long for it.
  bool wait_until_empty(std::chrono::milliseconds at_most);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moeflux
