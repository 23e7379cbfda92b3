#include <algorithm>

#include "base/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operations.h"

namespace moeflux::jinja {
namespace {

// Takes a keyword argument out of the call.
std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& named) { return named.first == name; });
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

}  // namespace

Value Evaluator::call(const Value& callee, Arguments& arguments) {
  const DepthGuard guard(runtime_.meter);
  require_defined(callee);
  const int line = runtime_.line;
  Value result;
  if (callee.is(Kind::Function)) {
    result = callee.as<FunctionObject>().body(arguments);
  } else if (callee.is(Kind::Loop)) {
    auto& loop = callee.as<LoopObject>();
    if (!loop.recurse) {
      fail(Errc::BadInput, "The loop must have the 'recursive' marker to be called recursively.");
    }
    if (arguments.positional.size() != 1 || !arguments.named.empty()) {
      fail(Errc::BadInput, "loop() takes exactly one argument");
    }
    const LoopObject::Recurse recurse = loop.recurse;
    result = recurse(arguments.positional[0], loop.depth0 + 1);
  } else {
    fail(Errc::BadInput, "'{}' object is not callable", type_name(callee));
  }
  runtime_.line = line;
  return result;
}

Value Evaluator::make_macro(const MacroDefinition& macro) {
  Value function =
      runtime_.function(macro.name, [this, &macro, closure = scope_](Arguments& arguments) {
        return call_macro(macro, closure, arguments);
      });
  function.as<FunctionObject>().is_macro = true;
  return function;
}

Value Evaluator::call_macro(const MacroDefinition& macro, const Ref<Scope>& closure,
                            Arguments& arguments) {
  runtime_.meter.step(16);
  const ScopeGuard scope(*this, runtime_.heap.make<Scope>(runtime_.meter, closure));
  bind_parameters(macro, arguments);
  TextBuilder output(runtime_);
  const OutputGuard guard(*this, output);
  exec(macro.body);
  return output.value();
}

// Fills the scope of a macro call. Defaults are evaluated last, because they may name parameters.
void Evaluator::bind_parameters(const MacroDefinition& macro, Arguments& arguments) {
  const auto& parameters = macro.parameters;
  runtime_.meter.step(parameters.size() * (1 + (parameters.size() + arguments.named.size()) / 8));
  const std::size_t given = std::min(arguments.positional.size(), parameters.size());
  std::vector<const MacroDefinition::Parameter*> absent;
  bool names_caller = false;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    names_caller |= parameter.text == "caller";
    if (i < given) {
      scope_->set(parameter.name, arguments.positional[i]);
    } else if (auto value = take_named(arguments, parameter.text)) {
      scope_->set(parameter.name, std::move(*value));
    } else {
      scope_->set(parameter.name, runtime_.undefined(fmt::format("parameter '{}' was not provided",
                                                                 parameter.text)));
      absent.push_back(&parameter);
    }
  }
  if (macro.uses_caller && !names_caller) {
    auto caller = take_named(arguments, "caller");
    scope_->set(tree_.caller, caller ? *caller : runtime_.undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    const Ref<DictObject> rest = runtime_.new_dict();
    for (const auto& [name, value] : arguments.named) rest->set(runtime_.string(name), value);
    scope_->set(tree_.kwargs, Value::object(Kind::Dict, rest));
  } else if (!arguments.named.empty()) {
    fail(Errc::BadInput, "macro '{}' takes no keyword argument '{}'", macro.name,
         arguments.named.front().first);
  }
  if (macro.uses_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
    scope_->set(tree_.varargs, runtime_.tuple({rest, arguments.positional.end()}));
  } else if (arguments.positional.size() > parameters.size()) {
    fail(Errc::BadInput, "macro '{}' takes not more than {} argument(s)", macro.name,
         parameters.size());
  }
  for (const auto* parameter : absent) {
    if (parameter->fallback) scope_->set(parameter->name, eval(*parameter->fallback));
  }
}

}  // namespace moeflux::jinja
