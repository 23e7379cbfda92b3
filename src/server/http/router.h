// Which handler answers which path. Built once, then read by any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/http/exchange.h"

namespace moeflux {

// Runs on a worker's thread. An HttpError or Error that it throws is answered in the form of its
// route, if nothing was answered yet.
using HttpHandler = std::function<void(const HttpRequest&, const ExchangePtr&)>;

struct HttpRoute {
  std::string method;
  std::string pattern;  // "/v1/models/{model}": the last piece may name a parameter, taking all
  HttpHandler handler;
  ErrorForm error_form;
  bool needs_key = true;
};

class HttpRouter {
 public:
  void add(HttpRoute route) { routes_.push_back(std::move(route)); }

  // Fills the request's parameters. Throws HttpError 404, or 405 with the methods there are. HEAD
  // finds GET.
  const HttpRoute& find(HttpRequest& request) const;

 private:
  std::vector<HttpRoute> routes_;
};

}  // namespace moeflux
