// Breaking one line of text into lines of a given width, as Python's textwrap does it.
#pragma once

#include <cstddef>
#include <vector>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

struct WrapOptions {
  std::size_t width = 79;  // characters
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

std::vector<MarkedString> wrap_line(Runtime& runtime, const MarkedString& line,
                                    const WrapOptions& options);

}  // namespace moeflux::jinja
