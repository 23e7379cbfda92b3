#include "cli/options/server_options.h"

#include "base/error.h"

namespace moeflux::cli {

void add_server_options(Command& command, ServerOptions& options, const std::string& help) {
  command.group("Server")
      .option("--server", options.server, "URL", help)
      .env("MOEFLUX_SERVER")
      .option("--api-key", options.api_key, "KEY", "the key it asks for")
      .env("MOEFLUX_API_KEY")
      .secret();
}

HttpClient make_client(const ServerOptions& options, const std::string& command) {
  try {
    return {parse_server_address(options.server.value_or(kDefaultServer)),
            options.api_key.value_or("")};
  } catch (const Error& error) {
    throw UsageError(error.what(), command);
  }
}

}  // namespace moeflux::cli
