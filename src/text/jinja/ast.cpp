#include "text/jinja/ast.h"

#include <algorithm>

namespace moeflux::jinja {
namespace {

class DepthOf {
 public:
  void operator()(const LiteralExpr&) {}
  void operator()(const NameExpr&) {}
  void operator()(const SequenceExpr& node) { add(node.items); }
  void operator()(const DictExpr& node) {
    for (const auto& [key, value] : node.items) {
      add(key);
      add(value);
    }
  }
  void operator()(const UnaryExpr& node) { add(node.operand); }
  void operator()(const BinaryExpr& node) {
    add(node.left);
    add(node.right);
  }
  void operator()(const LogicalExpr& node) {
    add(node.left);
    add(node.right);
  }
  void operator()(const CompareExpr& node) {
    add(node.first);
    for (const auto& [op, operand] : node.rest) add(operand);
  }
  void operator()(const ConcatExpr& node) { add(node.parts); }
  void operator()(const ConditionalExpr& node) {
    add(node.test);
    add(node.then);
    add(node.otherwise);
  }
  void operator()(const AttributeExpr& node) { add(node.object); }
  void operator()(const ItemExpr& node) {
    add(node.object);
    add(node.index);
  }
  void operator()(const SliceExpr& node) {
    add(node.object);
    add(node.start);
    add(node.stop);
    add(node.step);
  }
  void operator()(const CallExpr& node) {
    add(node.callee);
    add(node.arguments);
  }
  void operator()(const FilterExpr& node) {
    add(node.input);
    add(node.arguments);
  }
  void operator()(const TestExpr& node) {
    add(node.input);
    add(node.arguments);
  }

  int depth = 1;

 private:
  void add(const ExprPtr& child) {
    if (child) depth = std::max(depth, child->depth + 1);
  }
  void add(const std::vector<ExprPtr>& children) {
    for (const ExprPtr& child : children) add(child);
  }
  void add(const CallArguments& arguments) {
    add(arguments.positional);
    for (const auto& [name, value] : arguments.named) add(value);
    add(arguments.star);
    add(arguments.star_star);
  }
};

}  // namespace

int depth_of(const Expr::Node& node) {
  DepthOf measure;
  std::visit(measure, node);
  return measure.depth;
}

}  // namespace moeflux::jinja
