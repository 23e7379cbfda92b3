#include "hub/settings.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxTokenBytes = 64 << 10;

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

std::string with_home(const ReadVariable& variable, std::string path) {
  const auto home = variable("HOME");
  if (home && (path == "~" || path.starts_with("~/"))) return *home + path.substr(1);
  return path;
}

std::string hub_home(const ReadVariable& variable) {
  if (const auto given = variable("HF_HOME")) return with_home(variable, *given);
  if (const auto cache = variable("XDG_CACHE_HOME"))
    return with_home(variable, *cache) + "/huggingface";
  return with_home(variable, "~/.cache/huggingface");
}

bool is_set(const std::optional<std::string>& value) {
  if (!value) return false;
  const std::string low = in_lower_case(*value);
  return low == "1" || low == "true" || low == "yes" || low == "on";
}

std::string base64(std::string_view bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kLetters[group >> (18 - 6 * j) & 63];
  }
  return text;
}

bool is_covered(const std::string& host, std::string rule) {
  if (rule == "*") return true;
  rule = rule.substr(0, rule.find(':'));
  if (rule.starts_with('.')) rule.erase(0, 1);
  if (rule.empty()) return false;
  return host == rule || (host.size() > rule.size() && host.ends_with(rule) &&
                          host[host.size() - rule.size() - 1] == '.');
}

Proxy parse_proxy(const std::string& text) {
  std::string address = text.find("://") == std::string::npos ? "http://" + text : text;
  const std::size_t begin = address.find("://") + 3;
  const std::size_t end = std::min(address.find('/', begin), address.size());
  const std::size_t at = address.rfind('@', end);
  Proxy proxy;
  if (at != std::string::npos && at >= begin) {
    proxy.authorization =
        "Basic " + base64(decode_path(std::string_view(address).substr(begin, at - begin)));
    address.erase(begin, at + 1 - begin);
  }
  // Not in the words of parse_url(), which would show a password.
  try {
    proxy.address = parse_url(address);
  } catch (const Error&) {
    fail(Errc::BadInput,
         "the proxy of http_proxy or https_proxy is no address such as "
         "http://proxy.example:3128");
  }
  if (proxy.address.is_secure())
    fail(Errc::Unsupported,
         "{}: a proxy is reached by http, not https; connections through it are "
         "encrypted from end to end",
         proxy.address.origin());
  return proxy;
}

}  // namespace

std::optional<Proxy> ProxySettings::proxy_for(const Url& url) const {
  const std::string& text = url.is_secure() ? https : http;
  if (text.empty()) return std::nullopt;
  if (std::any_of(no_proxy.begin(), no_proxy.end(),
                  [&](const std::string& rule) { return is_covered(url.host, rule); }))
    return std::nullopt;
  return parse_proxy(text);
}

std::string hub_cache_directory(const ReadVariable& variable) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto given = variable(name)) return with_home(variable, *given);
  }
  return hub_home(variable) + "/hub";
}

HubSettings read_hub_settings(const ReadVariable& variable) {
  HubSettings settings;
  if (const auto given = variable("HF_ENDPOINT")) settings.endpoint = trimmed(*given);
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  settings.cache = hub_cache_directory(variable);
  settings.offline = is_set(variable("HF_HUB_OFFLINE"));

  const auto token_path = variable("HF_TOKEN_PATH");
  settings.token_place =
      token_path ? with_home(variable, *token_path) : hub_home(variable) + "/token";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (settings.token.empty()) settings.token = trimmed(variable(name).value_or(""));
  }
  if (settings.token.empty() && file_exists(settings.token_place)) {
    try {
      settings.token = trimmed(read_text_file(settings.token_place, kMaxTokenBytes));
    } catch (const Error&) {
      // Most models need none; one that does says so.
    }
  }
  if (std::any_of(settings.token.begin(), settings.token.end(),
                  [](unsigned char c) { return c <= ' ' || c >= 0x7F; }))
    fail(Errc::BadInput, "the token of HF_TOKEN or {} has blanks or characters that are not ASCII",
         settings.token_place);

  const auto either = [&](const char* small, const char* large) {
    auto value = variable(small);
    if (!value && large != nullptr) value = variable(large);
    return trimmed(value.value_or(""));
  };
  const std::string all = either("all_proxy", "ALL_PROXY");
  settings.proxies.http = either("http_proxy", nullptr);  // HTTP_PROXY is a header in CGI
  settings.proxies.https = either("https_proxy", "HTTPS_PROXY");
  for (std::string* each : {&settings.proxies.http, &settings.proxies.https})
    if (each->empty()) *each = all;
  for (const std::string& rule : split(either("no_proxy", "NO_PROXY"), ',')) {
    std::string name = in_lower_case(trimmed(rule));
    if (!name.empty()) settings.proxies.no_proxy.push_back(std::move(name));
  }
  return settings;
}

}  // namespace moeflux
