// A small client for HTTP/1.1: one request, one connection, the caller waits.
//
// Whatever comes from the server is untrusted: sizes and times are limited, and its texts are made
// safe for a terminal before they become part of a message. While it waits it asks `cancelled`
// every kPollTime, and throws Error(Cancelled) with the connection closed when that holds; only
// looking up the name of a host cannot be broken off. May be used from several threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/options/server_options.h"

namespace moeflux::cli {

struct HttpCall {
  std::string method = "GET";
  std::string path = "/";  // below the base of the address, already encoded
  Json body = nullptr;     // null: none
  // Takes the body of a success piece by piece, unless that is JSON. Any other body is collected.
  // False: enough, the rest is not waited for. What it throws comes out of send().
  std::function<bool(std::string_view)> on_piece = {};
  std::function<bool()> cancelled = {};
  std::chrono::milliseconds silence{30'000};  // how long not a single byte may come
};

struct HttpReply {
  int status = 0;
  std::string content_type = {};  // "application/json": no parameters, lower case
  std::string location = {};      // of a redirection; none is followed
  std::string body = {};

  bool ok() const { return status >= 200 && status < 300; }
};

class HttpClient {
 public:
  static constexpr std::chrono::milliseconds kPollTime{50};
  static constexpr std::chrono::milliseconds kConnectTime{10'000};
  static constexpr std::uint32_t kMaxHeaderBytes = 64 << 10;
  static constexpr std::uint64_t kMaxBodyBytes = 64 << 20;                  // collected
  static constexpr std::uint64_t kMaxStreamBytes = std::uint64_t{4} << 30;  // by pieces

  // An empty key: none. Throws Error(BadInput) for one that cannot stand in a header.
  HttpClient(ServerAddress address, std::string api_key);

  // Every status is a reply. Throws Error(Io) when there is no whole one.
  HttpReply send(const HttpCall& call) const;
  // The JSON of a success; throws what check() throws, and Error(BadInput) for anything else.
  Json json(const HttpCall& call) const;
  // Returns for a success, else throws an Error that has the server's own words.
  void check(const HttpReply& reply) const;

  const ServerAddress& address() const { return address_; }

 private:
  ServerAddress address_;
  std::string api_key_;
};

// What a body that reports an error says: in the form of OpenAI, Anthropic, Ollama and their like.
// Empty when it reports none.
std::string error_message(const Json& body);

// Reading JSON that a server sends, where everything may be missing or of another type: what is not
// there as expected counts as absent.
// A null counts as absent, too.
inline const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// member(member(object, a), b) and so on.
template <class... Keys>
const Json* member(const Json& object, const char* key, Keys... more) {
  const Json* inner = member(object, key);
  return inner == nullptr ? nullptr : member(*inner, more...);
}

inline std::string text_or_empty(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

inline double number_or_zero(const Json* value) {
  return value != nullptr && value->is_number() ? value->get<double>() : 0;
}

// A number of things: not negative.
inline std::int64_t count_or_zero(const Json* value) {
  const double number = number_or_zero(value);
  if (!(number > 0)) return 0;
  constexpr double kMost = 9e18;  // below the largest integer
  return number > kMost ? std::numeric_limits<std::int64_t>::max()
                        : static_cast<std::int64_t>(number);
}

}  // namespace moeflux::cli
