// The filters and tests of the language, by name.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

struct FilterEntry {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Value& input, const Arguments& arguments);
};

struct TestEntry {
  std::string_view name;
  bool (*body)(Runtime& runtime, const Value& input, const Arguments& arguments);
};

// Null when there is none of that name.
const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);

// These throw when there is none of that name.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments);

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> html_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selection_filters();

// Looks up "a.b.0" in a value, as filters with an `attribute` do.
Value lookup_path(Runtime& runtime, Value value, const Value& path);
// Strings in lower case, anything else as it is: the key by which filters ignore case.
Value without_case(Runtime& runtime, const Value& value);

}  // namespace moeflux::jinja
