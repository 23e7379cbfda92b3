// Rendering for the tests of the template language: fixed variables, a fixed clock.
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/jinja/template.h"

namespace moeflux::jinja {

struct RenderCase {
  const char* source;
  const char* rendered;
};

const Json& sample_variables();

MarkedText render_marked(std::string_view source, const Json& variables);

// With the sample variables.
std::string render_sample(std::string_view source);

}  // namespace moeflux::jinja
