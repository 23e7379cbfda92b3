#include <algorithm>

#include "base/error.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace moeflux::jinja {
namespace {

StringRef literal_string(std::string text) {
  auto string = std::make_shared<StringObject>();
  string->text = MarkedString(std::move(text), Origin::Markup);
  return string;
}

// One more than the depth of the deepest child.
class DepthOf {
 public:
  void operator()(const LiteralExpr&) {}
  void operator()(const NameExpr&) {}
  void operator()(const SequenceExpr& node) { add(node.items); }
  void operator()(const DictExpr& node) {
    for (const auto& [key, value] : node.items) add(key, value);
  }
  void operator()(const UnaryExpr& node) { add(node.operand); }
  void operator()(const BinaryExpr& node) { add(node.left, node.right); }
  void operator()(const LogicalExpr& node) { add(node.left, node.right); }
  void operator()(const CompareExpr& node) {
    add(node.first);
    for (const auto& [op, operand] : node.rest) add(operand);
  }
  void operator()(const ConcatExpr& node) { add(node.parts); }
  void operator()(const ConditionalExpr& node) { add(node.test, node.then, node.otherwise); }
  void operator()(const AttributeExpr& node) { add(node.object); }
  void operator()(const ItemExpr& node) { add(node.object, node.index); }
  void operator()(const SliceExpr& node) { add(node.object, node.start, node.stop, node.step); }
  void operator()(const CallExpr& node) { add(node.callee, node.arguments); }
  void operator()(const FilterExpr& node) { add(node.input, node.arguments); }
  void operator()(const TestExpr& node) { add(node.input, node.arguments); }

  int depth = 1;

 private:
  void add(const ExprPtr& child) {
    if (child) depth = std::max(depth, child->depth + 1);
  }
  void add(const std::vector<ExprPtr>& children) {
    for (const ExprPtr& child : children) add(child);
  }
  void add(const CallArguments& arguments) {
    add(arguments.positional, arguments.star, arguments.star_star);
    for (const auto& [name, value] : arguments.named) add(value);
  }
  template <class First, class... Rest>
  void add(const First& first, const Rest&... rest) requires(sizeof...(Rest) > 0) {
    add(first);
    (add(rest), ...);
  }
};

}  // namespace

// Recursion of the parser itself; the tree's depth is checked by make().
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.expression_nesting_ > kMaxExpressionDepth) {
      fail(Errc::LimitExceeded, "{}:{}: an expression is nested more than {} levels deep",
           parser_.tree_.name, parser_.current().line, kMaxExpressionDepth);
    }
  }
  ~Nesting() { --parser_.expression_nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

ExprPtr Parser::make(int line, Expr::Node node) const {
  DepthOf measured;
  std::visit(measured, node);
  if (measured.depth > kMaxExpressionDepth) {
    fail(Errc::LimitExceeded, "{}:{}: an expression has more than {} levels", tree_.name, line,
         kMaxExpressionDepth);
  }
  return std::make_unique<const Expr>(Expr{std::move(node), line, measured.depth});
}

ExprPtr Parser::parse_tuple(Conditional conditional, bool parenthesized,
                            std::string_view end_name) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    const Token& token = current();
    const bool end = token.type == TokenType::VariableEnd || token.type == TokenType::BlockEnd ||
                     token.is_operator(")") || (!end_name.empty() && token.is_name(end_name));
    if (end) break;
    items.push_back(conditional == Conditional::Allowed ? parse_expression() : parse_or());
    if (!take_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (items.empty() && !parenthesized) {
    syntax_error(fmt::format("expected an expression, got {}", describe(current())));
  }
  return make(line, SequenceExpr{Kind::Tuple, std::move(items)});
}

ExprPtr Parser::parse_expression() {
  const Nesting nesting(*this);
  const int line = current().line;
  ExprPtr expr = parse_or();
  while (take_name("if")) {
    ExprPtr test = parse_or();
    ExprPtr otherwise = take_name("else") ? parse_expression() : nullptr;
    expr = make(line, ConditionalExpr{std::move(test), std::move(expr), std::move(otherwise)});
  }
  return expr;
}

// Operators of one precedence, which group to the left. The words "and" and "or" are names.
template <class Node, class Op>
ExprPtr Parser::parse_left_to_right(std::initializer_list<std::pair<std::string_view, Op>> ops,
                                    ExprPtr (Parser::*parse_operand)()) {
  ExprPtr left = (this->*parse_operand)();
  while (true) {
    const auto* const op = std::find_if(ops.begin(), ops.end(), [&](const auto& entry) {
      return current().is_operator(entry.first) || current().is_name(entry.first);
    });
    if (op == ops.end()) return left;
    const int line = take().line;
    ExprPtr right = (this->*parse_operand)();
    left = make(line, Node{op->second, std::move(left), std::move(right)});
  }
}

ExprPtr Parser::parse_or() {
  return parse_left_to_right<LogicalExpr, LogicalOp>({{"or", LogicalOp::Or}}, &Parser::parse_and);
}

ExprPtr Parser::parse_and() {
  return parse_left_to_right<LogicalExpr, LogicalOp>({{"and", LogicalOp::And}}, &Parser::parse_not);
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = take().line;
  return make(line, UnaryExpr{UnaryOp::Not, parse_not()});
}

std::optional<CompareOp> Parser::take_compare_op() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::Equal},     {"!=", CompareOp::NotEqual}, {"<", CompareOp::Less},
      {"<=", CompareOp::LessEqual}, {">", CompareOp::Greater},   {">=", CompareOp::GreaterEqual},
  };
  for (const auto& [text, found] : kOps) {
    if (take_operator(text)) return found;
  }
  if (take_name("in")) return CompareOp::In;
  if (!current().is_name("not") || !next().is_name("in")) return std::nullopt;
  take();
  take();
  return CompareOp::NotIn;
}

ExprPtr Parser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
  while (const auto op = take_compare_op()) rest.emplace_back(*op, parse_sum());
  if (rest.empty()) return first;
  return make(line, CompareExpr{std::move(first), std::move(rest)});
}

ExprPtr Parser::parse_sum() {
  return parse_left_to_right<BinaryExpr, BinaryOp>(
      {{"+", BinaryOp::Add}, {"-", BinaryOp::Subtract}}, &Parser::parse_concat);
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!current().is_operator("~")) return first;
  std::vector<ExprPtr> parts;
  parts.push_back(std::move(first));
  while (take_operator("~")) parts.push_back(parse_product());
  return make(line, ConcatExpr{std::move(parts)});
}

ExprPtr Parser::parse_product() {
  return parse_left_to_right<BinaryExpr, BinaryOp>({{"*", BinaryOp::Multiply},
                                                    {"/", BinaryOp::Divide},
                                                    {"//", BinaryOp::FloorDivide},
                                                    {"%", BinaryOp::Modulo}},
                                                   &Parser::parse_power);
}

ExprPtr Parser::parse_power() {
  return parse_left_to_right<BinaryExpr, BinaryOp>({{"**", BinaryOp::Power}},
                                                   &Parser::parse_filtered);
}

ExprPtr Parser::parse_filtered() {
  const Nesting nesting(*this);
  return parse_filters_and_tests(parse_unary());
}

ExprPtr Parser::parse_unary() {
  if (!current().is_operator("-") && !current().is_operator("+"))
    return parse_postfix(parse_primary());
  const Nesting nesting(*this);
  const Token sign = take();
  const UnaryOp op = sign.text == "-" ? UnaryOp::Negate : UnaryOp::Plus;
  return parse_postfix(make(sign.line, UnaryExpr{op, parse_unary()}));
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.type) {
    case TokenType::Name:
      return parse_name();
    case TokenType::String: {
      std::string text;
      while (current().type == TokenType::String) text += take().text;
      return make(line, LiteralExpr{Value::string(literal_string(std::move(text)))});
    }
    case TokenType::Integer:
      return make(line, LiteralExpr{Value::integer(take().integer)});
    case TokenType::Float:
      return make(line, LiteralExpr{Value::real(take().real)});
    default:
      break;
  }
  if (take_operator("(")) {
    ExprPtr inner = parse_tuple(Conditional::Allowed, true);
    expect_operator(")");
    return inner;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  syntax_error(fmt::format("expected an expression, got {}", describe(token)));
}

ExprPtr Parser::parse_name() {
  const Token token = take();
  const std::string& name = token.text;
  if (const auto constant = constant_of(name)) return make(token.line, LiteralExpr{*constant});
  for (MacroDefinition* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
  return make(token.line, NameExpr{intern(name)});
}

ExprPtr Parser::parse_list() {
  const int line = take().line;
  std::vector<ExprPtr> items;
  while (!current().is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(line, SequenceExpr{Kind::List, std::move(items)});
}

ExprPtr Parser::parse_dict() {
  const int line = take().line;
  DictExpr dict;
  while (!current().is_operator("}")) {
    if (!dict.items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    ExprPtr key = parse_expression();
    expect_operator(":");
    ExprPtr value = parse_expression();
    dict.items.emplace_back(std::move(key), std::move(value));
  }
  expect_operator("}");
  return make(line, std::move(dict));
}

// ---- what can follow an operand: attributes, subscripts, calls, filters and tests

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (current().type == TokenType::Operator) {
    if (current().text == ".") {
      expr = parse_attribute(std::move(expr));
    } else if (current().text == "[") {
      expr = parse_subscript(std::move(expr));
    } else if (current().text == "(") {
      expr = parse_call(std::move(expr));
    } else {
      break;
    }
  }
  return expr;
}

ExprPtr Parser::parse_attribute(ExprPtr object) {
  const int line = take().line;
  if (current().type == TokenType::Integer) {
    ExprPtr index = make(line, LiteralExpr{Value::integer(take().integer)});
    return make(line, ItemExpr{std::move(object), std::move(index)});
  }
  return make(line, AttributeExpr{std::move(object), expect_name()});
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const int line = take().line;
  ExprPtr start;
  if (!current().is_operator(":")) {
    start = parse_expression();
    if (current().is_operator(",")) {
      std::vector<ExprPtr> items;
      items.push_back(std::move(start));
      while (take_operator(",")) items.push_back(parse_expression());
      start = make(line, SequenceExpr{Kind::Tuple, std::move(items)});
    }
    if (take_operator("]")) return make(line, ItemExpr{std::move(object), std::move(start)});
  }
  expect_operator(":");
  const auto bound = [&]() -> ExprPtr {
    const bool absent = current().is_operator(":") || current().is_operator("]");
    return absent ? nullptr : parse_expression();
  };
  ExprPtr stop = bound();
  ExprPtr step = take_operator(":") ? bound() : nullptr;
  expect_operator("]");
  return make(line,
              SliceExpr{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (take_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (take_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (current().is_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (take_operator(".")) name.append(".").append(expect_name());
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  const int line = current().line;
  std::string name = parse_dotted_name();
  CallArguments arguments;
  if (current().is_operator("(")) arguments = parse_arguments();
  return make(line, FilterExpr{std::move(input), std::move(name), std::move(arguments)});
}

ExprPtr Parser::parse_filter_chain(ExprPtr input) {
  while (take_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const int line = current().line;
  const bool negated = take_name("not");
  std::string name = parse_dotted_name();
  CallArguments arguments;
  const Token& token = current();
  if (token.is_operator("(")) {
    arguments = parse_arguments();
  } else {
    const bool has_argument = (token.type == TokenType::Name && !token.is_name("else") &&
                               !token.is_name("or") && !token.is_name("and")) ||
                              token.type == TokenType::String || token.type == TokenType::Integer ||
                              token.type == TokenType::Float || token.is_operator("[") ||
                              token.is_operator("{");
    if (has_argument) {
      if (token.is_name("is")) syntax_error("tests cannot be chained with 'is'");
      arguments.positional.push_back(parse_postfix(parse_primary()));
    }
  }
  ExprPtr test = make(line, TestExpr{std::move(input), std::move(name), std::move(arguments)});
  return negated ? make(line, UnaryExpr{UnaryOp::Not, std::move(test)}) : std::move(test);
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  const int line = current().line;
  CallArguments arguments = parse_arguments();
  return make(line, CallExpr{std::move(callee), std::move(arguments)});
}

CallArguments Parser::parse_arguments() {
  expect_operator("(");
  CallArguments arguments;
  const auto ensure = [&](bool in_order) {
    if (!in_order) syntax_error("the arguments of a call are in an impossible order");
  };
  bool first = true;
  while (!current().is_operator(")")) {
    if (!first) expect_operator(",");
    if (!first && current().is_operator(")")) break;
    first = false;
    if (take_operator("*")) {
      ensure(!arguments.star && !arguments.star_star);
      arguments.star = parse_expression();
    } else if (take_operator("**")) {
      ensure(!arguments.star_star);
      arguments.star_star = parse_expression();
    } else if (current().type == TokenType::Name && next().is_operator("=")) {
      ensure(!arguments.star_star);
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!arguments.star && !arguments.star_star && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return arguments;
}

}  // namespace moeflux::jinja
