// Where a request ends is said by its header, and must mean the same to everybody on the way: what
// a proxy takes for a body must never be read here as a second request.
#pragma once

#include <optional>

#include "server/http/http.h"

namespace moeflux {

// What is wrong with a header, as far as it says where the request ends and which host it is for.
// Names are in lower case. The connection must be closed after such a request.
std::optional<HttpError> check_framing(const HttpHeaders& headers, bool is_http_1_1);

}  // namespace moeflux
