// The parts of the OpenAPI document, as they were when the program was built: paths.json, and
// schemas.json, which becomes its components.schemas.
#pragma once

#include "server/page/page_files.h"

namespace moeflux {

std::span<const PageFile> openapi_files();

}  // namespace moeflux
