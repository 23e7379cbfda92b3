// The files of the web page, as they were when the program was built (cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace moeflux {

struct PageFile {
  std::string_view path;  // "index.html", "chat/composer.js"
  std::string_view hash;  // of its bytes
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace moeflux
