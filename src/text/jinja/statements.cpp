#include "base/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace moeflux::jinja {

Evaluator::Flow Evaluator::exec(const Block& block) {
  for (const Statement& statement : block) {
    const Flow flow = exec(statement);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec(const Statement& statement) {
  const DepthGuard guard(runtime_.meter);
  runtime_.meter.step();
  runtime_.line = statement.line;
  return std::visit([this](const auto& node) { return exec_node(node); }, statement.node);
}

Evaluator::Flow Evaluator::exec_node(const TextStatement& node) {
  output_->append(node.text->text);
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec_node(const OutputStatement& node) {
  const Value value = eval(*node.value);
  if (value.is_string()) {
    output_->append(value.text());
  } else {
    output_->append(to_text(runtime_, value));
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec_node(const IfStatement& node) {
  for (const auto& [test, body] : node.branches) {
    if (truthy(eval(*test))) return exec(body);
  }
  return exec(node.otherwise);
}

// ---- loops

Evaluator::Flow Evaluator::exec_node(const ForStatement& node) {
  return run_loop(node, eval(*node.iterable), 0);
}

Ref<LoopObject> Evaluator::make_loop(const ForStatement& node, const Value& iterable, int depth0) {
  auto loop = runtime_.heap.make<LoopObject>(runtime_.meter, items_of(runtime_, iterable));
  loop->depth0 = depth0;
  if (node.filter) {
    loop->accept = [this, &node, outer = scope_](const Value& item) {
      const Temporarily scope(scope_, runtime_.heap.make<Scope>(runtime_.meter, outer));
      assign(node.target, item);
      return truthy(eval(*node.filter));
    };
  }
  if (node.recursive) {
    loop->recurse = [this, &node, outer = scope_](const Value& items, int depth) {
      const Temporarily scope(scope_, outer);
      TextBuilder output(runtime_);
      const Temporarily guard(output_, &output);
      run_loop(node, items, depth);
      return output.value();
    };
  }
  return loop;
}

Evaluator::Flow Evaluator::run_loop(const ForStatement& node, const Value& iterable, int depth0) {
  const Ref<LoopObject> loop = make_loop(node, iterable, depth0);
  const Value loop_variable = Value::object(Kind::Loop, loop);
  // Jinja runs the else block unless some pass through the body reached its end.
  bool completed = false;
  while (loop->advance()) {
    runtime_.meter.step();
    const Temporarily scope(scope_, new_scope());
    scope_->set(tree_.loop, loop_variable);
    assign(node.target, loop->current());
    const Flow flow = exec(node.body);
    if (flow == Flow::Break) break;
    completed |= flow == Flow::Normal;
  }
  loop->drop_children();
  if (completed || node.otherwise.empty()) return Flow::Normal;
  const Temporarily scope(scope_, new_scope());
  return exec(node.otherwise);
}

// ---- assignments and blocks

Evaluator::Flow Evaluator::exec_node(const SetStatement& node) {
  assign(node.target, eval(*node.value));
  return Flow::Normal;
}

// Text that a break or continue left behind is dropped, as is what would have been done with it.
Evaluator::Flow Evaluator::capture(const Block& block, Value& text) {
  const Temporarily scope(scope_, new_scope());
  TextBuilder output(runtime_);
  const Temporarily guard(output_, &output);
  const Flow flow = exec(block);
  text = output.value();
  return flow;
}

Value Evaluator::filter_captured(const ExprPtr& filter, const Value& captured) {
  const Temporarily input(filter_input_, &captured);
  return eval(*filter);
}

Evaluator::Flow Evaluator::exec_node(const SetBlockStatement& node) {
  Value value;
  const Flow flow = capture(node.body, value);
  if (flow != Flow::Normal) return flow;
  if (node.filter) value = filter_captured(node.filter, value);
  assign(node.target, value);
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec_node(const FilterBlockStatement& node) {
  Value text;
  const Flow flow = capture(node.body, text);
  if (flow == Flow::Normal) {
    output_->append(to_text(runtime_, filter_captured(node.filter, text)));
  }
  return flow;
}

Evaluator::Flow Evaluator::exec_node(const MacroStatement& node) {
  assign(node.name, make_macro(node.macro));
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec_node(const CallBlockStatement& node) {
  Arguments arguments;
  arguments.named.emplace_back("caller", make_macro(node.caller));
  const Value result = call_with(std::get<CallExpr>(node.call->node), std::move(arguments));
  output_->append(to_text(runtime_, result));
  return Flow::Normal;
}

Evaluator::Flow Evaluator::exec_node(const WithStatement& node) {
  const Ref<Scope> inner = new_scope();
  for (const auto& [target, expr] : node.bindings) {
    const Value value = eval(*expr);
    const Temporarily scope(scope_, inner);
    assign(target, value);
  }
  const Temporarily scope(scope_, inner);
  return exec(node.body);
}

Evaluator::Flow Evaluator::exec_node(const ScopeStatement& node) {
  const Temporarily scope(scope_, new_scope());
  return exec(node.body);
}

}  // namespace moeflux::jinja
