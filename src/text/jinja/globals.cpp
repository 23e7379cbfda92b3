#include "text/jinja/globals.h"

#include <array>
#include <ctime>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/sorting.h"

namespace moeflux::jinja {
namespace {

constexpr std::uint64_t kMaxRange = 100'000;  // the same as in Python's sandbox
constexpr std::size_t kMaxTimeFormat = 1000;
constexpr std::size_t kMaxMessage = 4000;

Value range_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("range", arguments, {"start", "stop", "step"}, 1);
  const std::int64_t start = bound.has(1) ? bound.integer(0) : 0;
  const std::int64_t stop = bound.integer(bound.has(1) ? 1 : 0);
  const std::int64_t step = bound.integer_or(2, 1);
  if (step == 0) fail(Errc::BadInput, "range() arg 3 must not be zero");
  const auto range = runtime.heap.make<RangeObject>(start, stop, step);
  if (range->size() > kMaxRange) {
    fail(Errc::LimitExceeded, "range() of more than {} numbers", kMaxRange);
  }
  return Value::object(Kind::Range, range);
}

Value dict_global(Runtime& runtime, const Arguments& arguments) {
  const Ref<DictObject> dict = runtime.new_dict();
  update_dict(runtime, *dict, arguments);
  return Value::object(Kind::Dict, dict);
}

Value namespace_global(Runtime& runtime, const Arguments& arguments) {
  const auto object = runtime.heap.make<NamespaceObject>(runtime.meter);
  update_dict(runtime, *object->attributes, arguments);
  return Value::object(Kind::Namespace, object);
}

Value cycler_global(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty()) fail(Errc::BadInput, "at least one item has to be provided");
  return Value::object(Kind::Cycler, runtime.heap.make<CyclerObject>(arguments.positional));
}

Value joiner_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("joiner", arguments, {"sep"});
  const Value separator = bound.value_or(0, runtime.string(", "));
  return runtime.function("joiner", [&runtime, separator, used = false](Arguments&) mutable {
    return std::exchange(used, true) ? separator : runtime.string("");
  });
}

Value raise_exception_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  fail(Errc::BadInput, "{}", to_text(runtime, bound[0]).view().substr(0, kMaxMessage));
}

Value strftime_now_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  std::string format = bound.text(0).bytes();
  if (format.empty()) return runtime.string("");
  if (format.size() > kMaxTimeFormat) fail(Errc::LimitExceeded, "the format of a date is too long");
  // Python's %f, which C does not have.
  for (std::size_t at = format.find("%f"); at != std::string::npos; at = format.find("%f", at)) {
    format.replace(at, 2, "000000");
  }
  std::tm now{};
  if (runtime.options().local_time) {
    now = *runtime.options().local_time;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  format += ' ';  // an empty result could not be told from a failure
  std::string text(64 * kMaxTimeFormat, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now));
  if (text.empty()) fail(Errc::BadInput, "the format of a date is not usable");
  text.pop_back();
  return runtime.string(text);
}

Value lipsum_global(Runtime&, const Arguments&) {
  fail(Errc::Unsupported, "lipsum() is not supported");
}

struct GlobalEntry {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Arguments& arguments);
};

constexpr std::array<GlobalEntry, 8> kGlobals = {{
    {"range", range_global},
    {"dict", dict_global},
    {"namespace", namespace_global},
    {"cycler", cycler_global},
    {"joiner", joiner_global},
    {"raise_exception", raise_exception_global},
    {"strftime_now", strftime_now_global},
    {"lipsum", lipsum_global},
}};

}  // namespace

Value find_global(Runtime& runtime, std::string_view name) {
  for (const GlobalEntry& global : kGlobals) {
    if (global.name != name) continue;
    return runtime.function(
        std::string(name),
        [&runtime, body = global.body](Arguments& arguments) { return body(runtime, arguments); });
  }
  return {};
}

}  // namespace moeflux::jinja
