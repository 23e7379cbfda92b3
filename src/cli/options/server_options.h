// How commands that talk to a running server are told which one.
#pragma once

#include <optional>
#include <string>

#include "cli/client/http_client.h"
#include "cli/command_line.h"

namespace moeflux::cli {

struct ServerOptions {
  std::optional<std::string> server;   // --server; nothing: not given
  std::optional<std::string> api_key;  // --api-key
};

// `help` says what --server means for the command.
void add_server_options(Command& command, ServerOptions& options, const std::string& help);

// Throws UsageError for an address or a key that cannot be one.
HttpClient make_client(const ServerOptions& options, const std::string& command);

}  // namespace moeflux::cli
