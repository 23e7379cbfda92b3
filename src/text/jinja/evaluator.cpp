#include "text/jinja/evaluator.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

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

Evaluator::Evaluator(const Tree& tree, Runtime& runtime, const Json& variables)
    : tree_(tree), runtime_(runtime), variables_(variables), top_level_(tree.names.size()) {}

MarkedString Evaluator::run() {
  TextBuilder output(runtime_);
  const Temporarily guard(output_, &output);
  exec(tree_.body);
  return output.take();
}

// ---- variables

// The special tokens are the engine's own words, not the user's.
Value Evaluator::initial_value(const std::string& name) {
  const auto found = variables_.find(name);
  if (found != variables_.end()) {
    const bool special_token = found->is_string() && name.ends_with("_token");
    return runtime_.from_json(*found, special_token ? Origin::Markup : Origin::Data);
  }
  Value global = find_global(runtime_, name);
  return global.is_undefined() ? runtime_.undefined(fmt::format("'{}' is undefined", name))
                               : global;
}

const Value& Evaluator::lookup(NameId name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent().get()) {
    runtime_.meter.step(1 + scope->size() / 8);
    if (const Value* found = scope->find(name)) return *found;
  }
  std::optional<Value>& value = top_level_[name];
  if (!value) value = initial_value(tree_.names[name]);
  return *value;
}

void Evaluator::assign(NameId name, Value value) {
  if (scope_) {
    runtime_.meter.step(1 + scope_->size() / 8);
    scope_->set(name, std::move(value));
  } else {
    top_level_[name] = std::move(value);
  }
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (const auto* name = std::get_if<NameId>(&target.place)) return assign(*name, value);
  if (const auto* attribute = std::get_if<Target::Attribute>(&target.place)) {
    const Value object = lookup(attribute->object);
    if (!object.is(Kind::Namespace)) {
      fail(Errc::BadInput, "cannot assign attribute on non-namespace object '{}'",
           tree_.names[attribute->object]);
    }
    object.as<NamespaceObject>().attributes->set(runtime_.string(attribute->name), value);
    return;
  }
  const auto& targets = std::get<std::vector<Target>>(target.place);
  const std::vector<Value> items = items_of(runtime_, value);
  if (items.size() != targets.size()) {
    fail(Errc::BadInput, "{} values to unpack (expected {}, got {})",
         items.size() < targets.size() ? "not enough" : "too many", targets.size(), items.size());
  }
  for (std::size_t i = 0; i < targets.size(); ++i) assign(targets[i], items[i]);
}

// ---- expressions

Value Evaluator::eval(const Expr& expr) {
  const DepthGuard guard(runtime_.meter);
  runtime_.meter.step();
  runtime_.line = expr.line;
  return std::visit([this](const auto& node) { return eval_node(node); }, expr.node);
}

Value Evaluator::eval_optional(const ExprPtr& expr) {
  return expr ? eval(*expr) : Value::none();
}

Value Evaluator::eval_node(const SequenceExpr& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) items.push_back(eval(*item));
  return runtime_.sequence(node.kind, std::move(items));
}

Value Evaluator::eval_node(const DictExpr& node) {
  const Ref<DictObject> dict = runtime_.new_dict();
  for (const auto& [key, value] : node.items) {
    const Value evaluated_key = eval(*key);
    dict->set(evaluated_key, eval(*value));
  }
  return Value::object(Kind::Dict, dict);
}

Value Evaluator::eval_node(const UnaryExpr& node) {
  const Value operand = eval(*node.operand);
  if (node.op == UnaryOp::Not) return Value::boolean(!truthy(operand));
  return node.op == UnaryOp::Negate ? negate(operand) : plus(operand);
}

Value Evaluator::eval_node(const BinaryExpr& node) {
  const int line = runtime_.line;
  const Value left = eval(*node.left);
  const Value right = eval(*node.right);
  runtime_.line = line;
  return binary(runtime_, node.op, left, right);
}

Value Evaluator::eval_node(const LogicalExpr& node) {
  Value left = eval(*node.left);
  const bool decided = truthy(left) == (node.op == LogicalOp::Or);
  return decided ? left : eval(*node.right);
}

Value Evaluator::eval_node(const CompareExpr& node) {
  Value left = eval(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = eval(*operand);
    if (!compare(runtime_, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::eval_node(const ConcatExpr& node) {
  TextBuilder text(runtime_);
  for (const ExprPtr& part : node.parts) text.append(to_text(runtime_, eval(*part)));
  return text.value();
}

Value Evaluator::eval_node(const ConditionalExpr& node) {
  if (truthy(eval(*node.test))) return eval(*node.then);
  if (node.otherwise) return eval(*node.otherwise);
  return runtime_.undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Value Evaluator::eval_node(const AttributeExpr& node) {
  const int line = runtime_.line;
  const Value object = eval(*node.object);
  runtime_.line = line;
  return get_attribute(runtime_, object, node.name);
}

Value Evaluator::eval_node(const ItemExpr& node) {
  const Value object = eval(*node.object);
  const Value index = eval(*node.index);
  return get_item(runtime_, object, index);
}

Value Evaluator::eval_node(const SliceExpr& node) {
  const Value object = eval(*node.object);
  const Value start = eval_optional(node.start);
  const Value stop = eval_optional(node.stop);
  const Value step = eval_optional(node.step);
  return get_slice(runtime_, object, start, stop, step);
}

Value Evaluator::eval_node(const FilterExpr& node) {
  const int line = runtime_.line;
  const Value input = node.input ? eval(*node.input) : *filter_input_;
  const Arguments arguments = eval_arguments(node.arguments);
  runtime_.line = line;
  return apply_filter(runtime_, node.name, input, arguments);
}

Value Evaluator::eval_node(const TestExpr& node) {
  const Value input = eval(*node.input);
  const Arguments arguments = eval_arguments(node.arguments);
  return Value::boolean(apply_test(runtime_, node.name, input, arguments));
}

// ---- calls

Arguments Evaluator::eval_arguments(const CallArguments& arguments) {
  Arguments result;
  result.positional.reserve(arguments.positional.size());
  for (const ExprPtr& argument : arguments.positional) result.positional.push_back(eval(*argument));
  for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, eval(*value));
  if (arguments.star) {
    for (Value& item : items_of(runtime_, eval(*arguments.star))) {
      result.positional.push_back(std::move(item));
    }
  }
  if (arguments.star_star) {
    const Value named = eval(*arguments.star_star);
    if (!named.is(Kind::Dict)) {
      fail(Errc::BadInput, "argument after ** must be a mapping, not {}", type_name(named));
    }
    for (const auto& [key, value] : named.as<DictObject>().entries()) {
      if (!key.is_string()) fail(Errc::BadInput, "keywords must be strings");
      result.named.emplace_back(key.text().bytes(), value);
    }
  }
  return result;
}

// `arguments` are what the caller adds to those written in the template.
Value Evaluator::call_with(const CallExpr& node, Arguments arguments) {
  const int line = runtime_.line;
  const auto add_arguments = [&] {
    Arguments written = eval_arguments(node.arguments);
    for (auto& named : arguments.named) written.named.push_back(std::move(named));
    arguments = std::move(written);
    runtime_.line = line;
  };
  // A method that is called at once needs no function object.
  if (const auto* attribute = std::get_if<AttributeExpr>(&node.callee->node)) {
    const Value object = eval(*attribute->object);
    const Builtin* method = find_method(object.kind(), attribute->name);
    if (method != nullptr && may_call(*method, object)) {
      add_arguments();
      return method->call(runtime_, object, arguments);
    }
    const Value callee = get_attribute(runtime_, object, attribute->name);
    add_arguments();
    return call(callee, arguments);
  }
  const Value callee = eval(*node.callee);
  add_arguments();
  return call(callee, arguments);
}

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
  const Temporarily scope(scope_, runtime_.heap.make<Scope>(runtime_.meter, closure));
  bind_parameters(macro, arguments);
  TextBuilder output(runtime_);
  const Temporarily guard(output_, &output);
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
