#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/operations.h"

namespace moeflux::jinja {
namespace {

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  const auto& items = arguments.positional;
  if (items.empty()) fail(Errc::BadInput, "no items for cycling given");
  return items[static_cast<std::size_t>(self.as<LoopObject>().index0) % items.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  auto& last = self.as<LoopObject>().last_changed;
  const auto& now = arguments.positional;
  const bool same =
      last && std::equal(last->begin(), last->end(), now.begin(), now.end(),
                         [&](const Value& a, const Value& b) { return equal(runtime, a, b); });
  if (!same) last = now;
  return Value::boolean(!same);
}

Value cycler_next(Runtime&, const Value& self, const Arguments&) {
  auto& cycler = self.as<CyclerObject>();
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Runtime&, const Value& self, const Arguments&) {
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

Value tuple_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return find_method(Kind::List, "index")->body(runtime, self, arguments);
}

Value tuple_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return find_method(Kind::List, "count")->body(runtime, self, arguments);
}

Value float_is_integer(Runtime&, const Value& self, const Arguments&) {
  return Value::boolean(std::isfinite(self.as_real()) &&
                        std::floor(self.as_real()) == self.as_real());
}

constexpr std::array<MethodEntry, 2> kLoopMethods = {{
    {"changed", loop_changed},
    {"cycle", loop_cycle},
}};
constexpr std::array<MethodEntry, 2> kCyclerMethods = {{
    {"next", cycler_next},
    {"reset", cycler_reset},
}};
constexpr std::array<MethodEntry, 2> kTupleMethods = {{
    {"count", tuple_count},
    {"index", tuple_index},
}};
constexpr std::array<MethodEntry, 1> kFloatMethods = {{
    {"is_integer", float_is_integer},
}};

const MethodEntry* find_in(std::span<const MethodEntry> methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const MethodEntry& entry) { return entry.name == name; });
  return found != methods.end() ? &*found : nullptr;
}

}  // namespace

const MethodEntry* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::String: {
      const MethodEntry* method = find_in(string_split_methods(), name);
      return method != nullptr ? method : find_in(string_methods(), name);
    }
    case Kind::List:
      return find_in(list_methods(), name);
    case Kind::Tuple:
      return find_in(kTupleMethods, name);
    case Kind::Dict:
      return find_in(dict_methods(), name);
    case Kind::Loop:
      return find_in(kLoopMethods, name);
    case Kind::Cycler:
      return find_in(kCyclerMethods, name);
    case Kind::Float:
      return find_in(kFloatMethods, name);
    default:
      return nullptr;
  }
}

bool may_call(const MethodEntry& method, const Value& self) {
  if (!method.forbidden_on_input) return true;
  return self.is(Kind::List) ? !self.as<SequenceObject>().is_input
                             : !self.as<DictObject>().is_input;
}

}  // namespace moeflux::jinja
