// The web page. It needs no key to be loaded, since it holds nothing that is not in every copy of
// the program; what it asks for needs one.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/errors.h"
#include "server/page/page_files.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

// Only what came from here runs, and nothing is fetched from or sent to anywhere else. What a model
// or a pasted text says is never code.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

std::string content_type(std::string_view path) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes{{
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".webmanifest", "application/manifest+json"},
  }};
  for (const auto& [ending, type] : kTypes) {
    if (path.ends_with(ending)) return std::string(type);
  }
  return "text/plain; charset=utf-8";
}

HttpHeaders page_headers(const PageFile& file) {
  return {{"ETag", fmt::format("\"{}\"", file.hash)},
          {"Cache-Control", "no-cache"},  // kept, and asked for again by its tag
          {"Content-Security-Policy", kPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

// Whether the client has these bytes already: If-None-Match is a list of tags, or "*".
bool is_known(const HttpRequest& request, const PageFile& file) {
  const std::string_view tags = request.header("if-none-match");
  return tags == "*" || tags.find(fmt::format("\"{}\"", file.hash)) != std::string_view::npos;
}

HttpResponse page_response(const HttpRequest& request, std::string_view path) {
  const auto files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const PageFile& each) { return each.path == path; });
  if (found == files.end()) {
    throw HttpError(404, "not_found_error",
                    fmt::format("there is nothing at {} {}", request.method, request.path));
  }
  HttpResponse response{.content_type = content_type(path), .headers = page_headers(*found)};
  response.body = found->text;
  if (is_known(request, *found)) response.status = 304;
  return response;
}

// A browser gets the page. Clients of Ollama ask here whether the server is there.
HttpResponse front(const ServerApp&, const HttpRequest& request) {
  HttpResponse response;
  if (request.header("accept").find("text/html") != std::string_view::npos)
    response = page_response(request, "index.html");
  else
    response = {.content_type = "text/plain; charset=utf-8", .body = "moeflux is running"};
  response.headers.emplace_back("Vary", "Accept");
  return response;
}

// Browsers ask for it where a page does not name another.
HttpResponse page_icon(const ServerApp&, const HttpRequest& request) {
  return page_response(request, "icon.svg");
}

HttpResponse page_file(const ServerApp&, const HttpRequest& request) {
  return page_response(request, request.parameters.at("file"));
}

}  // namespace

void add_page_routes(ServerApp& app) {
  app.add_route("GET", "/", front, ollama_error, /*needs_key=*/false);
  app.add_route("GET", "/favicon.ico", page_icon, openai_error, /*needs_key=*/false);
  app.add_route("GET", "/page/{file}", page_file, openai_error, /*needs_key=*/false);
}

}  // namespace moeflux
