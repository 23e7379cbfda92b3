// Requests and responses as plain values: what the HTTP core and the dialects above it speak of.
// Nothing here knows of sockets.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace moeflux {

class MemoryShare;

struct HttpRequest {
  std::string method;                               // "GET"
  std::string path;                                 // decoded, without the query
  std::map<std::string, std::string> query = {};    // decoded
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::shared_ptr<MemoryShare> memory = {};         // reserved for what follows; null: not counted
  std::string body = {};
  std::map<std::string, std::string> parameters = {};  // of the route: {"model"} -> "demo"
  bool is_local = false;  // through a UNIX socket: there is no host and no origin to check

  std::string_view header(std::string_view lower_case_name) const;  // "" when absent
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};
};

// The beginning of an answer whose end is not known yet.
struct StreamHead {
  std::string content_type = "text/event-stream";
  HttpHeaders headers = {};
  // Sent whenever nothing else was for a while, so that nobody takes the silence of a long prefill
  // for a dead connection. Empty: never.
  std::string ping = ": ping\n\n";
};

// What a request is refused with. Each dialect writes it in its own form.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, std::string type, const std::string& message)
      : std::runtime_error(message), status_(status), type_(std::move(type)) {}

  HttpError& with_param(std::string name) {
    param_ = std::move(name);
    return *this;
  }
  HttpError& with_number(std::string name, std::int64_t value) {
    numbers_.emplace_back(std::move(name), value);
    return *this;
  }
  HttpError& with_path(std::string path) {
    path_ = std::move(path);
    return *this;
  }
  HttpError& with_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
    return *this;
  }

  int status() const { return status_; }
  const std::string& type() const { return type_; }    // "invalid_request_error"
  const std::string& param() const { return param_; }  // the field at fault; "" when none is
  // Further members of the error: {"n_ctx", 4096}.
  const std::vector<std::pair<std::string, std::int64_t>>& numbers() const { return numbers_; }
  const HttpHeaders& headers() const { return headers_; }
  // That was asked for, where no route has been found yet; "" when it is not known.
  const std::string& path() const { return path_; }

 private:
  int status_;
  std::string type_, param_, path_;
  std::vector<std::pair<std::string, std::int64_t>> numbers_;
  HttpHeaders headers_;
};

HttpError bad_request(const std::string& message, std::string param = "");
// An Error of the engine as a client should see it.
HttpError to_http_error(const Error& error);

std::string_view status_text(int status);  // "Not Found"

// "%41+b" -> "A b" in a query; a path keeps its plus signs. Broken escapes stay as they are.
std::string percent_decode(std::string_view text, bool plus_is_space);
// "/a?b=c" into path and query. An absolute address loses its scheme and host.
void split_target(std::string_view target, HttpRequest& request);

}  // namespace moeflux
