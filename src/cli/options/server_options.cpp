#include "cli/options/server_options.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "cli/client/http_client.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kHttp = "http://", kHttps = "https://", kUnix = "unix:";
constexpr std::string_view kSocketSuffix = ".sock", kVersion = "/v1";
constexpr const char* kOurPort = "9099";
constexpr std::size_t kMaxSocketPath = 107;  // of sockaddr_un

bool starts_with(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

[[noreturn]] void refuse(const std::string& text, std::string_view why) {
  fail(Errc::BadInput,
       "\"{}\" is no address of a server: {}; write http://HOST:PORT, https://HOST, or the path "
       "of a UNIX socket that ends in .sock",
       safe_line(text), why);
}

// Takes ":PORT" off the end of "HOST:PORT" or "[V6]:PORT".
void split_authority(const std::string& text, std::string_view authority, ServerAddress& address) {
  if (!authority.empty() && authority.front() == '[') {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse(text, "a ] is missing");
    address.host = authority.substr(1, end - 1);
    authority.remove_prefix(end + 1);
    if (!authority.empty() && authority.front() != ':')
      refuse(text, "after ] only :PORT may follow");
  } else {
    address.host = authority.substr(0, authority.find(':'));
    authority.remove_prefix(address.host.size());
  }
  if (address.host.empty()) refuse(text, "it has no host");
  if (authority.empty()) return;
  address.port = authority.substr(1);
  const int number = to_number<int>(address.port).value_or(0);
  if (number < 1 || number > 65535) refuse(text, "its port is no number from 1 to 65535");
}

ServerAddress socket_address(const std::string& text, std::string_view path) {
  if (path.empty() || path.size() > kMaxSocketPath)
    refuse(text, fmt::format("a UNIX socket has a path of at most {} bytes", kMaxSocketPath));
  ServerAddress address;
  address.socket = path;
  return address;
}

}  // namespace

std::string ServerAddress::authority() const {
  if (!socket.empty()) return "localhost";
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string ServerAddress::text() const {
  if (!socket.empty()) return "unix:" + socket;
  return fmt::format("{}{}{}", tls ? kHttps : kHttp, authority(), base);
}

ServerAddress parse_server_address(const std::string& text) {
  // Nothing that could end a line of the request's header.
  const bool plain =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 0x7F; });
  if (starts_with(text, kUnix)) return socket_address(text, text.substr(kUnix.size()));
  if (text.find("://") == std::string::npos && text.size() > kSocketSuffix.size() &&
      text.ends_with(kSocketSuffix))
    return socket_address(text, text);
  if (!plain) refuse(text, "it has characters that belong to none");
  ServerAddress address;
  std::string_view rest = text;
  address.tls = starts_with(text, kHttps);
  const bool has_scheme = address.tls || starts_with(text, kHttp);
  if (has_scheme) rest.remove_prefix((address.tls ? kHttps : kHttp).size());
  if (rest.find("://") != std::string_view::npos)
    refuse(text, "only http:// and https:// are known");
  if (rest.find_first_of("@?#") != std::string_view::npos)
    refuse(text, "a user, a query or a fragment has no place in it");
  address.port = address.tls ? "443" : has_scheme ? "80" : kOurPort;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  split_authority(text, rest.substr(0, slash), address);
  address.base = rest.substr(slash);
  while (!address.base.empty() && address.base.back() == '/') address.base.pop_back();
  if (address.base.ends_with(kVersion)) address.base.resize(address.base.size() - kVersion.size());
  return address;
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("-._~").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

void add_server_options(Command& command, ServerOptions& options, const std::string& help) {
  command.group("Server")
      .option("--server", options.server, "URL", help)
      .env("MOEFLUX_SERVER")
      .option("--api-key", options.api_key, "KEY", "the key it asks for")
      .env("MOEFLUX_API_KEY")
      .secret();
}

HttpClient make_client(const ServerOptions& options) {
  try {
    return {parse_server_address(options.server.value_or(kDefaultServer)),
            options.api_key.value_or("")};
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace moeflux::cli
