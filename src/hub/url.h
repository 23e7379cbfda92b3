// Addresses of http and https, taken apart and put together.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

struct Url {
  std::string scheme;        // "http" or "https"
  std::string host;          // lower case; an IPv6 address without brackets
  std::string port;          // always there
  std::string target = "/";  // path and query, as they are sent

  std::string authority() const;  // "host" or "host:port", as a Host header has it
  std::string origin() const;     // "https://host"
  std::string text() const { return origin() + target; }
  // Without the query, which may hold a signature that must not be shown.
  std::string shown() const;
  bool is_secure() const { return scheme == "https"; }
  bool same_origin(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
};

// Throws Error(BadInput) naming the text: for another scheme, a user or password, blanks, control
// characters, or no host. A fragment is left out.
Url parse_url(std::string_view text);

// What a Location header means, sent by `base`. Throws Error(BadInput).
Url resolve_url(const Url& base, std::string_view location);

// ASCII letters.
std::string in_lower_case(std::string_view text);

// Each byte that may not stand in a path is written as %XX; "/" stays.
std::string encode_path(std::string_view path);
// The reverse; an incomplete %X stays as it is.
std::string decode_path(std::string_view path);

}  // namespace moeflux
