// Which running server a command talks to.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/command_line.h"

namespace moeflux::cli {

class HttpClient;

// Where a server is: http://host[:port][/base], the same with https, host[:port] (port 9099 unless
// given), or a UNIX socket as unix:/path or as a path that ends in .sock. A base that ends in /v1
// is meant without it: that is what other programs ask for.
struct ServerAddress {
  std::string host, port;  // the host without the brackets of an IPv6 address
  std::string socket;      // the path of a UNIX socket; then there is no host
  std::string base;        // "", or "/base"
  bool tls = false;

  std::string authority() const;  // "127.0.0.1:9099", for the Host header
  std::string text() const;       // for messages
};

// Throws Error(BadInput) that says what to write instead.
ServerAddress parse_server_address(const std::string& text);

std::string percent_encoded(std::string_view text);  // for a query

inline constexpr const char* kDefaultServer = "http://127.0.0.1:9099";

struct ServerOptions {
  std::optional<std::string> server;   // --server; nothing: not given
  std::optional<std::string> api_key;  // --api-key
};

// `help` says what --server means for the command.
void add_server_options(Command& command, ServerOptions& options, const std::string& help);

// Throws UsageError for an address or a key that cannot be one.
HttpClient make_client(const ServerOptions& options);

}  // namespace moeflux::cli
