#include "text/jinja/sorting.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "text/jinja/operations.h"

namespace moeflux::jinja {

std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(runtime, keys[b], keys[a]) : less(runtime, keys[a], keys[b]);
  });
  std::vector<Value> result;
  result.reserve(items.size());
  for (const std::size_t index : order) result.push_back(items[index]);
  return result;
}

void update_dict(Runtime& runtime, DictObject& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail(Errc::BadInput, "a dict is made from at most one positional argument");
  }
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::Dict)) {
      const auto entries = source.as<DictObject>().entries();
      runtime.meter.step(entries.size());
      for (const auto& [key, value] : entries) dict.set(key, value);
      continue;
    }
    for (const Value& pair : items_of(runtime, source)) {
      const std::vector<Value> parts = items_of(runtime, pair);
      if (parts.size() != 2) fail(Errc::BadInput, "a dict is made from pairs of key and value");
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(runtime.string(name), value);
}

}  // namespace moeflux::jinja
