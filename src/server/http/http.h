// HTTP requests, responses and errors as plain values, and the rules of their text: targets,
// headers and where a request ends. Nothing here knows of sockets.
#pragma once

#include <map>
#include <memory>
#include <optional>
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

// The head of a streamed response.
struct StreamHead {
  std::string content_type = "text/event-stream";
  HttpHeaders headers = {};
  // Sent after a while of silence, so that no client or proxy takes a long prefill for a dead
  // connection. Empty: never.
  std::string ping = ": ping\n\n";
};

// Why a request is refused. Each dialect writes it in its own form (dialects/errors.h).
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, std::string type, const std::string& message)
      : std::runtime_error(message), status_(status), type_(std::move(type)) {}

  HttpError& with_param(std::string name) {
    param_ = std::move(name);
    return *this;
  }
  // A word for programs, where the status does not say enough.
  HttpError& with_code(std::string code) {
    code_ = std::move(code);
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
  const std::string& code() const { return code_; }    // "": the status says it
  // Further members of the error: {"n_ctx", 4096}.
  const std::vector<std::pair<std::string, std::int64_t>>& numbers() const { return numbers_; }
  const HttpHeaders& headers() const { return headers_; }
  // The path of the request, for errors that occur before its route is found; "" when not known.
  const std::string& path() const { return path_; }

 private:
  int status_;
  std::string type_, param_, code_, path_;
  std::vector<std::pair<std::string, std::int64_t>> numbers_;
  HttpHeaders headers_;
};

HttpError bad_request(const std::string& message, std::string param = "");
// An Error of the engine as a client should see it.
HttpError to_http_error(const Error& error);

// Runs `body`; an Error about its input becomes a 400 that names the field `param`.
template <class Body>
auto naming(const std::string& param, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() != Errc::BadInput) throw;
    throw bad_request(error.what(), param);
  }
}

std::string_view status_text(int status);  // "Not Found"

// "/a?b=c" into path and query. An absolute address loses its scheme and host.
void split_target(std::string_view target, HttpRequest& request);
std::string lower_case(std::string_view text);  // of ASCII letters

// What is wrong with headers (names in lower case) that say where the request ends and which host
// it is for. A proxy must see the same end as we do: what it takes for a body must never be read
// here as a second request. So the connection must be closed after such a request.
std::optional<HttpError> check_framing(const HttpHeaders& headers, bool is_http_1_1);

}  // namespace moeflux
