// What the hub is and how to reach it: from the variables that its own tools read, so that a user
// who has set them once need not again.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/url.h"
#include "source/hub_cache.h"

namespace moeflux {

struct Proxy {
  Url address;
  std::string authorization;  // of a Proxy-Authorization header; "" where none is needed
};

struct ProxySettings {
  std::string http, https;            // addresses; "": none
  std::vector<std::string> no_proxy;  // hosts and their domains; "*": all

  // How to reach `url`, if not directly. Throws Error(BadInput) for an address that is none.
  std::optional<Proxy> proxy_for(const Url& url) const;
};

struct HubSettings {
  std::string endpoint = kDefaultEndpoint;
  std::string cache;        // the directory that holds models--org--name
  std::string token;        // "": none
  std::string token_place;  // where it is looked for, to tell the user
  bool offline = false;
  ProxySettings proxies;
};

// HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE, XDG_CACHE_HOME,
// HOME, and http_proxy, https_proxy, all_proxy, no_proxy in small and (but for http_proxy) large
// letters. A token file that cannot be read counts as none. Throws Error(BadInput) for a token that
// cannot stand in a header.
using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;
HubSettings read_hub_settings(const ReadVariable& variable);

// The cache alone: reads no token.
std::string hub_cache_directory(const ReadVariable& variable);

}  // namespace moeflux
