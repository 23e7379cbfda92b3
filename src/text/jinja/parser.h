// Turns the tokens of a template into its tree. Throws BadInput with the template's name and line
// for what is not Jinja, Unsupported for tags that need other templates, LimitExceeded for nesting
// that no real template has.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace moeflux::jinja {

class Parser {
 public:
  Parser(std::string_view source, std::string name);

  Tree parse();

 private:
  // Statements (parser.cpp)
  Block parse_block(std::initializer_list<std::string_view> end_tags);
  Block parse_body(std::initializer_list<std::string_view> end_tags);  // after the head of a tag
  Block parse_body_to(std::string_view end_tag);                       // and skips the end tag
  Statement parse_statement();
  Statement::Node parse_statement_node(const Token& tag);
  IfStatement parse_if();
  ForStatement parse_for();
  Statement::Node parse_set();
  MacroStatement parse_macro();
  CallBlockStatement parse_call_block();
  FilterBlockStatement parse_filter_block();
  WithStatement parse_with();
  void parse_signature(MacroDefinition& macro);
  void parse_macro_body(MacroDefinition& macro, std::string_view end_tag);
  Target parse_target(bool allow_attribute);
  Target parse_target_item();

  // Expressions, by falling precedence from the bottom up (parser_expressions.cpp)
  enum class Conditional { Allowed, NotAllowed };
  // With `end_name`, a comma may be followed by that word, as in "for a, in x".
  ExprPtr parse_tuple(Conditional conditional = Conditional::Allowed, bool parenthesized = false,
                      std::string_view end_name = {});
  ExprPtr parse_expression();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  template <class Node, class Op>
  ExprPtr parse_left_to_right(std::initializer_list<std::pair<std::string_view, Op>> ops,
                              ExprPtr (Parser::*parse_operand)());
  std::optional<CompareOp> take_compare_op();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_filtered();
  ExprPtr parse_unary();
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();

  // What follows an operand
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_filter(ExprPtr input);  // at the name of the filter
  ExprPtr parse_filter_chain(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  ExprPtr parse_call(ExprPtr callee);
  CallArguments parse_arguments();
  std::string parse_dotted_name();
  ExprPtr make(int line, Expr::Node node) const;

  // Tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool take_operator(std::string_view op);
  bool take_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name();
  void expect(TokenType type, std::string_view what);
  [[noreturn]] void syntax_error(const std::string& what) const;
  static std::optional<Value> constant_of(std::string_view name);
  NameId intern(const std::string& name);

  class Nesting;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Tree tree_;
  std::unordered_map<std::string, NameId> name_ids_;
  std::vector<MacroDefinition*> macros_;  // that are being parsed, outermost first
  int expression_nesting_ = 0;
  int block_nesting_ = 0;
  int loop_nesting_ = 0;  // loops that break and continue could mean
};

}  // namespace moeflux::jinja
