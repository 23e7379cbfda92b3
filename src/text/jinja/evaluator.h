// Runs a parsed template once. Expressions give values, statements write to the current output.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// The variables of a loop body, a macro call or a with block. What a scope does not have is looked
// up in its parent; writing never leaves the scope. The outermost scope is the evaluator's own.
class Scope : public Object {
 public:
  Scope(Heap& heap, Meter& meter, Ref<Scope> outer)
      : Object(heap), parent_(std::move(outer)), charge_(meter, kBytes) {}

  void drop_children() noexcept override {
    parent_ = {};
    variables_.clear();
  }

  const Ref<Scope>& parent() const { return parent_; }
  std::size_t size() const { return variables_.size(); }

  const Value* find(NameId name) const {
    for (const auto& [id, value] : variables_) {
      if (id == name) return &value;
    }
    return nullptr;
  }

  void set(NameId name, Value value) {
    for (auto& [id, old] : variables_) {
      if (id == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

 private:
  static constexpr std::size_t kBytes = 256;  // with a few variables

  Ref<Scope> parent_;
  std::vector<std::pair<NameId, Value>> variables_;
  MemoryCharge charge_;
};

// Puts a value into a variable for as long as it lives.
template <class T>
class Temporarily {
 public:
  Temporarily(T& variable, T value)
      : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ~Temporarily() { variable_ = std::move(outer_); }
  Temporarily(const Temporarily&) = delete;
  Temporarily& operator=(const Temporarily&) = delete;

 private:
  T& variable_;
  T outer_;
};

class Evaluator {
 public:
  // All of them must outlive the evaluator.
  Evaluator(const Tree& tree, Runtime& runtime, const Json& variables);

  MarkedString run();

 private:
  enum class Flow { Normal, Break, Continue };

  // Expressions (evaluator.cpp)
  Value eval(const Expr& expr);
  Value eval_optional(const ExprPtr& expr);  // none when it is null
  Value eval_node(const LiteralExpr& node) { return node.value; }
  Value eval_node(const NameExpr& node) { return lookup(node.name); }
  Value eval_node(const SequenceExpr& node);
  Value eval_node(const DictExpr& node);
  Value eval_node(const UnaryExpr& node);
  Value eval_node(const BinaryExpr& node);
  Value eval_node(const LogicalExpr& node);
  Value eval_node(const CompareExpr& node);
  Value eval_node(const ConcatExpr& node);
  Value eval_node(const ConditionalExpr& node);
  Value eval_node(const AttributeExpr& node);
  Value eval_node(const ItemExpr& node);
  Value eval_node(const SliceExpr& node);
  Value eval_node(const CallExpr& node) { return call_with(node, {}); }
  Value eval_node(const FilterExpr& node);
  Value eval_node(const TestExpr& node);
  Arguments eval_arguments(const CallArguments& arguments);
  Value call_with(const CallExpr& node, Arguments arguments);

  // Calls
  Value call(const Value& callee, Arguments& arguments);
  Value make_macro(const MacroDefinition& macro);
  Value call_macro(const MacroDefinition& macro, const Ref<Scope>& closure, Arguments& arguments);
  void bind_parameters(const MacroDefinition& macro, Arguments& arguments);

  // Statements (statements.cpp)
  Flow exec(const Block& block);
  Flow exec(const Statement& statement);
  Flow exec_node(const TextStatement& node);
  Flow exec_node(const OutputStatement& node);
  Flow exec_node(const IfStatement& node);
  Flow exec_node(const ForStatement& node);
  Flow exec_node(const SetStatement& node);
  Flow exec_node(const SetBlockStatement& node);
  Flow exec_node(const MacroStatement& node);
  Flow exec_node(const CallBlockStatement& node);
  Flow exec_node(const FilterBlockStatement& node);
  Flow exec_node(const WithStatement& node);
  Flow exec_node(const ScopeStatement& node);
  Flow exec_node(const BreakStatement&) { return Flow::Break; }
  Flow exec_node(const ContinueStatement&) { return Flow::Continue; }
  Flow run_loop(const ForStatement& node, const Value& iterable, int depth0);
  Ref<LoopObject> make_loop(const ForStatement& node, const Value& iterable, int depth0);
  // Runs a block in a scope of its own; `text` is what it wrote.
  Flow capture(const Block& block, Value& text);
  Value filter_captured(const ExprPtr& filter, const Value& captured);

  // Variables
  Ref<Scope> new_scope() {
    runtime_.meter.step(4);
    return runtime_.heap.make<Scope>(runtime_.meter, scope_);
  }
  const Value& lookup(NameId name);
  void assign(NameId name, Value value);
  void assign(const Target& target, const Value& value);
  Value initial_value(const std::string& name);

  const Tree& tree_;
  Runtime& runtime_;
  const Json& variables_;
  std::vector<std::optional<Value>> top_level_;  // by NameId; filled when first used
  Ref<Scope> scope_;                             // null at the top level
  TextBuilder* output_ = nullptr;
  const Value* filter_input_ = nullptr;  // what a filter without an input works on
};

}  // namespace moeflux::jinja
