// The document that says what all routes take and give. It needs no key, as the page does not.
#include <mutex>

#include "server/dialects/errors.h"
#include "server/openapi/openapi_files.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

Json part(std::string_view path) {
  for (const PageFile& file : openapi_files()) {
    if (file.path == path) return parse_json(file.text, path);
  }
  fail(Errc::NotFound, "{} is not part of this program", path);
}

std::string make_document(const std::string& version) {
  Json document = part("paths.json");
  document["info"]["version"] = version;
  document["components"]["schemas"] = part("schemas.json");
  return dump_json(document);
}

HttpResponse openapi(const ServerApp& app, const HttpRequest&) {
  static std::mutex mutex;
  static std::string document, of_version;
  const std::lock_guard lock(mutex);
  if (document.empty() || of_version != app.options().version) {
    document = make_document(app.options().version);
    of_version = app.options().version;
  }
  return {.body = document};
}

}  // namespace

void add_openapi_routes(ServerApp& app) {
  app.add_route("GET", "/openapi.json", openapi, openai_error, /*needs_key=*/false);
}

}  // namespace moeflux
