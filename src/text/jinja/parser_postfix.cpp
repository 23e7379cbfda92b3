// What can follow an operand: attributes, subscripts, calls, filters and tests.
#include <fmt/format.h>

#include "text/jinja/parser.h"

namespace moeflux::jinja {

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
