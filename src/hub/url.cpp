#include "hub/url.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxBytes = 16 << 10;  // signed addresses are long

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

std::string default_port(std::string_view scheme) {
  return scheme == "https" ? "443" : "80";
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const auto low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// "host", "host:80", "[::1]:80"
void split_authority(std::string_view text, std::string_view authority, Url& url) {
  const auto refuse = [&](const char* why) { fail(Errc::BadInput, "{}: {}", text, why); };
  std::string_view host = authority, port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse("an address in brackets does not end");
    host = authority.substr(1, end - 1);
    std::string_view rest = authority.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') refuse("there is something after the address");
    if (!rest.empty()) port = rest.substr(1);
    if (host.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos)
      refuse("this is no address in brackets");
  } else {
    const std::size_t colon = authority.find(':');
    host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
    if (!std::all_of(host.begin(), host.end(), is_plain)) refuse("this is no name of a host");
  }
  if (host.empty() || host.size() > 255) refuse("it names no host");
  url.host = in_lower_case(host);
  if (!port.empty()) {
    const auto number = to_number<int>(port);
    if (!number || *number < 1 || *number > 65535) refuse("its port is no number up to 65535");
    url.port = std::to_string(*number);
  }
}

}  // namespace

std::string in_lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string Url::authority() const {
  const std::string name = host.find(':') != std::string::npos ? "[" + host + "]" : host;
  return port == default_port(scheme) ? name : name + ":" + port;
}

std::string Url::origin() const {
  return scheme + "://" + authority();
}

std::string Url::shown() const {
  return origin() + target.substr(0, target.find('?'));
}

Url parse_url(std::string_view text) {
  const auto refuse = [&](const char* why) {
    fail(Errc::BadInput, "{}: {}", text.substr(0, 200), why);
  };
  if (text.size() > kMaxBytes) refuse("the address is too long");
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return c <= ' ' || c >= 0x7F || c == '\\'; }))
    refuse("an address has no blanks, and other characters are written as %XX");
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) refuse("not an address: it begins with https://");
  Url url;
  url.scheme = in_lower_case(text.substr(0, colon));
  if (url.scheme != "http" && url.scheme != "https") refuse("only http and https are spoken");
  url.port = default_port(url.scheme);
  std::string_view rest = text.substr(colon + 3);
  rest = rest.substr(0, rest.find('#'));
  const std::size_t end = rest.find_first_of("/?");
  const std::string_view authority = rest.substr(0, end);
  if (authority.find('@') != std::string_view::npos)
    refuse("a user or password in an address is not used; a token comes from HF_TOKEN");
  split_authority(text, authority, url);
  if (end != std::string_view::npos) url.target = std::string(rest.substr(end));
  if (url.target.front() == '?') url.target = "/" + url.target;
  return url;
}

Url resolve_url(const Url& base, std::string_view location) {
  if (location.empty()) fail(Errc::BadInput, "{}: redirects to nowhere", base.shown());
  if (location.find("://") != std::string_view::npos &&
      location.find("://") < location.find_first_of("/?#"))
    return parse_url(location);
  if (location.starts_with("//")) return parse_url(base.scheme + ":" + std::string(location));
  if (location.front() == '/') return parse_url(base.origin() + std::string(location));
  const std::string path = base.target.substr(0, base.target.find('?'));
  return parse_url(base.origin() + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

std::string encode_path(std::string_view path) {
  std::string result;
  for (const char c : path) {
    if (is_plain(c) || c == '/')
      result += c;
    else
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

std::string decode_path(std::string_view path) {
  std::string result;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool is_code = path[i] == '%' && i + 2 < path.size() && hex_digit(path[i + 1]) >= 0 &&
                         hex_digit(path[i + 2]) >= 0;
    if (!is_code) {
      result += path[i];
      continue;
    }
    result += static_cast<char>(hex_digit(path[i + 1]) * 16 + hex_digit(path[i + 2]));
    i += 2;
  }
  return result;
}

}  // namespace moeflux
