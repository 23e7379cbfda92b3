#include "server/http/router.h"

#include <fmt/format.h>

namespace moeflux {
namespace {

bool matches(const std::string& pattern, const std::string& path,
             std::map<std::string, std::string>& parameters) {
  const std::size_t brace = pattern.find('{');
  if (brace == std::string::npos) return path == pattern;
  if (path.size() <= brace || path.compare(0, brace, pattern, 0, brace) != 0) return false;
  parameters[pattern.substr(brace + 1, pattern.size() - brace - 2)] = path.substr(brace);
  return true;
}

}  // namespace

const HttpRoute& HttpRouter::find(HttpRequest& request) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  for (const HttpRoute& route : routes_) {
    std::map<std::string, std::string> parameters;
    if (!matches(route.pattern, request.path, parameters)) continue;
    if (route.method == method) {
      request.parameters = std::move(parameters);
      return route;
    }
    allowed += (allowed.empty() ? "" : ", ") + route.method;
  }
  if (!allowed.empty()) {
    throw HttpError(405, "invalid_request_error",
                    fmt::format("{} takes {}, not {}", request.path, allowed, request.method))
        .with_header("Allow", allowed);
  }
  throw HttpError(404, "not_found_error",
                  fmt::format("there is nothing at {} {}", request.method, request.path));
}

}  // namespace moeflux
