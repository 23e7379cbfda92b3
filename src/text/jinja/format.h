// Python's two ways of formatting: 'a %s b' % values, and 'a {} b'.format(values).
#pragma once

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

Value percent_format(Runtime& runtime, const Value& format, const Value& arguments);
Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace moeflux::jinja
