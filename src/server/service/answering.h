// Runs what may fail and has the failure answered in the words of a dialect.
#pragma once

#include <new>

#include "server/http/router.h"

namespace moeflux {

inline void respond_with(Exchange& exchange, const ErrorForm& form, const HttpError& error) {
  HttpResponse response = form(error);
  for (const auto& header : error.headers()) response.headers.push_back(header);
  exchange.respond(std::move(response));
}

// `form` is looked at when something has failed: the body may find a better one.
template <class Body>
void answering(Exchange& exchange, const ErrorForm& form, Body body) {
  try {
    body();
  } catch (const HttpError& error) {
    respond_with(exchange, form, error);
  } catch (const Error& error) {
    respond_with(exchange, form, to_http_error(error));
  } catch (const std::bad_alloc&) {
    respond_with(exchange, form, {500, "server_error", "out of memory"});
  } catch (const std::exception& error) {
    respond_with(exchange, form, {500, "server_error", error.what()});
  }
}

}  // namespace moeflux
