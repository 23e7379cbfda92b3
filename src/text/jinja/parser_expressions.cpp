#include <algorithm>

#include "base/error.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser.h"

namespace moeflux::jinja {
namespace {

StringRef literal_string(std::string text) {
  auto string = std::make_shared<StringObject>();
  string->text = MarkedString(std::move(text), Origin::Markup);
  return string;
}

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
  const int depth = depth_of(node);
  if (depth > kMaxExpressionDepth) {
    fail(Errc::LimitExceeded, "{}:{}: an expression has more than {} levels", tree_.name, line,
         kMaxExpressionDepth);
  }
  return std::make_unique<const Expr>(Expr{std::move(node), line, depth});
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

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (current().is_name("or")) {
    const int line = take().line;
    ExprPtr right = parse_and();
    left = make(line, LogicalExpr{LogicalOp::Or, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (current().is_name("and")) {
    const int line = take().line;
    ExprPtr right = parse_not();
    left = make(line, LogicalExpr{LogicalOp::And, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = take().line;
  return make(line, UnaryExpr{UnaryOp::Not, parse_not()});
}

bool Parser::take_compare_op(CompareOp& op) {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::Equal},     {"!=", CompareOp::NotEqual}, {"<", CompareOp::Less},
      {"<=", CompareOp::LessEqual}, {">", CompareOp::Greater},   {">=", CompareOp::GreaterEqual},
  };
  for (const auto& [text, found] : kOps) {
    if (take_operator(text)) {
      op = found;
      return true;
    }
  }
  if (take_name("in")) {
    op = CompareOp::In;
    return true;
  }
  if (current().is_name("not") && next().is_name("in")) {
    take();
    take();
    op = CompareOp::NotIn;
    return true;
  }
  return false;
}

ExprPtr Parser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
  CompareOp op{};
  while (take_compare_op(op)) rest.emplace_back(op, parse_sum());
  if (rest.empty()) return first;
  return make(line, CompareExpr{std::move(first), std::move(rest)});
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (current().is_operator("+") || current().is_operator("-")) {
    const Token token = take();
    const BinaryOp op = token.text == "+" ? BinaryOp::Add : BinaryOp::Subtract;
    ExprPtr right = parse_concat();
    left = make(token.line, BinaryExpr{op, std::move(left), std::move(right)});
  }
  return left;
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
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
      {"*", BinaryOp::Multiply},
      {"/", BinaryOp::Divide},
      {"//", BinaryOp::FloorDivide},
      {"%", BinaryOp::Modulo},
  };
  ExprPtr left = parse_power();
  while (current().type == TokenType::Operator) {
    const auto* const op = std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& entry) {
      return entry.first == current().text;
    });
    if (op == std::end(kOps)) break;
    const int line = take().line;
    ExprPtr right = parse_power();
    left = make(line, BinaryExpr{op->second, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (current().is_operator("**")) {
    const int line = take().line;
    ExprPtr right = parse_unary(true);
    left = make(line, BinaryExpr{BinaryOp::Power, std::move(left), std::move(right)});
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = current().line;
  ExprPtr expr;
  if (take_operator("-")) {
    expr = make(line, UnaryExpr{UnaryOp::Negate, parse_unary(false)});
  } else if (take_operator("+")) {
    expr = make(line, UnaryExpr{UnaryOp::Plus, parse_unary(false)});
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
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
  if (name == "true" || name == "True") return make(token.line, LiteralExpr{Value::boolean(true)});
  if (name == "false" || name == "False") {
    return make(token.line, LiteralExpr{Value::boolean(false)});
  }
  if (name == "none" || name == "None") return make(token.line, LiteralExpr{Value::none()});
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

}  // namespace moeflux::jinja
