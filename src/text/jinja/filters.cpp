#include "text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "text/jinja/access.h"
#include "text/jinja/string_tools.h"

namespace moeflux::jinja {

const FilterEntry* find_filter(std::string_view name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, const FilterEntry*> map;
    for (const auto filters : {text_filters(), sequence_filters(), selection_filters(),
                               number_filters(), html_filters()}) {
      for (const FilterEntry& filter : filters) map.emplace(filter.name, &filter);
    }
    return map;
  }();
  const auto found = kByName.find(name);
  return found != kByName.end() ? found->second : nullptr;
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const FilterEntry* filter = find_filter(name);
  if (filter == nullptr) fail(Errc::Unsupported, "there is no filter named '{}'", name);
  return filter->body(runtime, input, arguments);
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments) {
  const TestEntry* test = find_test(name);
  if (test == nullptr) fail(Errc::Unsupported, "there is no test named '{}'", name);
  return test->body(runtime, input, arguments);
}

Value lookup_path(Runtime& runtime, Value value, const Value& path) {
  if (path.is_none()) return value;
  if (!path.is_string()) return get_item(runtime, value, path);
  std::string_view rest = path.view();
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        error == std::errc() && end == part.data() + part.size() && part.front() != '-';
    value = get_item(runtime, value, is_index ? Value::integer(index) : runtime.string(part));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value without_case(Runtime& runtime, const Value& value) {
  if (!value.is_string()) return value;
  return runtime.string(change_case(runtime, value.text(), Case::Lower));
}

}  // namespace moeflux::jinja
