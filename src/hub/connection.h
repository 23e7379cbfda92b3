// One connection to one origin, over TLS where the address says https and through a proxy where one
// is set. HTTP/1.1; a request at a time, and the connection stays open for the next one. One
// thread.
//
// Whatever comes is untrusted: headers are bounded, no body is believed longer than it is, and
// certificates are checked against the authorities that the system trusts (SSL_CERT_FILE and
// SSL_CERT_DIR name others). While it waits it asks `cancelled` every kPollTime, and throws
// Error(Cancelled) when that holds; looking up the name of a host cannot be broken off.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hub/settings.h"
#include "hub/url.h"

namespace moeflux {

struct HttpTiming {
  std::chrono::milliseconds connect{15'000};  // for each address of the host
  std::chrono::milliseconds silence{30'000};  // how long not a single byte may come
};

struct ReplyHead {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case; the last of equal ones
  std::optional<std::uint64_t> length;         // of the body, where it is said
  bool keep_alive = false;

  std::string header(const std::string& name) const {  // "" when there is none
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class TlsContext;
// Loads the trusted certificates once, for all connections. Throws Error(Io).
std::shared_ptr<TlsContext> make_tls_context();

class HttpsConnection {
 public:
  static constexpr std::chrono::milliseconds kPollTime{50};
  static constexpr std::uint32_t kMaxHeaderBytes = 64 << 10;

  struct Options {
    Url origin;  // its target does not matter
    std::optional<Proxy> proxy;
    std::shared_ptr<TlsContext> tls;
    HttpTiming timing = {};
    std::function<bool()> cancelled = {};
  };
  // Connects at the first request. Every method throws Error(Io) that names the host when the line
  // fails, and Error(Unsupported) when a certificate cannot be trusted; then the connection is of
  // no more use.
  explicit HttpsConnection(Options options);
  ~HttpsConnection();

  using Headers = std::vector<std::pair<std::string, std::string>>;
  ReplyHead send(std::string_view method, const std::string& target, const Headers& headers);

  // Bytes of the body; 0: it has ended. Throws where the line is cut before.
  std::size_t read(std::span<std::byte> out);

  // Whether the next request can be sent on it: the last body was read to its end, and the server
  // has not said that it will close.
  bool is_reusable() const;
  bool is_fresh() const;  // no request was answered on it yet

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moeflux
