#include "text/jinja/parser.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/lexer.h"

namespace moeflux::jinja {

Parser::Parser(std::string_view source, std::string name) {
  tokens_ = tokenize(source, name);
  tree_.name = std::move(name);
  tree_.loop = intern("loop");
  tree_.caller = intern("caller");
  tree_.varargs = intern("varargs");
  tree_.kwargs = intern("kwargs");
}

Tree Parser::parse() {
  tree_.body = parse_block({});
  return std::move(tree_);
}

// ---- tokens

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::take_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  take();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!take_operator(op)) {
    syntax_error(fmt::format("expected '{}', got {}", op, describe(current())));
  }
}

std::string Parser::expect_name() {
  if (current().type != TokenType::Name) {
    syntax_error(fmt::format("expected a name, got {}", describe(current())));
  }
  return take().text;
}

void Parser::expect(TokenType type, std::string_view what) {
  if (current().type != type) {
    syntax_error(fmt::format("expected {}, got {}", what, describe(current())));
  }
  take();
}

void Parser::syntax_error(const std::string& what) const {
  fail(Errc::BadInput, "{}:{}: {}", tree_.name, current().line, what);
}

std::optional<Value> Parser::constant_of(std::string_view name) {
  if (name == "true" || name == "True") return Value::boolean(true);
  if (name == "false" || name == "False") return Value::boolean(false);
  if (name == "none" || name == "None") return Value::none();
  return std::nullopt;
}

NameId Parser::intern(const std::string& name) {
  const auto [place, added] = name_ids_.emplace(name, tree_.names.size());
  if (added) tree_.names.push_back(name);
  return place->second;
}

// ---- blocks

Block Parser::parse_block(std::initializer_list<std::string_view> end_tags) {
  if (block_nesting_ == kMaxBlockDepth) {
    fail(Errc::LimitExceeded, "{}:{}: blocks are nested more than {} levels deep", tree_.name,
         current().line, kMaxBlockDepth);
  }
  ++block_nesting_;
  Block block;
  while (current().type != TokenType::End) {
    const int line = current().line;
    if (current().type == TokenType::Data) {
      auto text = std::make_shared<StringObject>();
      text->text = MarkedString(take().text, Origin::Markup);
      block.push_back({TextStatement{std::move(text)}, line});
    } else if (current().type == TokenType::VariableBegin) {
      take();
      block.push_back({OutputStatement{parse_tuple()}, line});
      expect(TokenType::VariableEnd, "'}}'");
    } else {
      expect(TokenType::BlockBegin, "a tag");
      const bool at_end = std::any_of(end_tags.begin(), end_tags.end(),
                                      [&](std::string_view tag) { return current().is_name(tag); });
      if (at_end) break;
      block.push_back(parse_statement());
      expect(TokenType::BlockEnd, "'%}'");
    }
  }
  --block_nesting_;
  if (current().type == TokenType::End && end_tags.size() != 0) {
    syntax_error(fmt::format("the template ends before {{% {} %}}", *(end_tags.end() - 1)));
  }
  return block;
}

Block Parser::parse_body(std::initializer_list<std::string_view> end_tags) {
  take_operator(":");
  expect(TokenType::BlockEnd, "'%}'");
  return parse_block(end_tags);
}

Block Parser::parse_body_to(std::string_view end_tag) {
  Block body = parse_body({end_tag});
  take();
  return body;
}

// ---- statements

Statement Parser::parse_statement() {
  if (current().type != TokenType::Name) syntax_error("expected the name of a tag after '{%'");
  const Token tag = take();
  return {parse_statement_node(tag), tag.line};
}

Statement::Node Parser::parse_statement_node(const Token& tag) {
  const std::string& name = tag.text;
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call_block();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "generation") {
    const int outer_loops = std::exchange(loop_nesting_, 0);
    ScopeStatement scope{parse_body_to("endgeneration")};
    loop_nesting_ = outer_loops;
    return scope;
  }
  if (name == "break" || name == "continue") {
    if (loop_nesting_ == 0) syntax_error(fmt::format("'{}' outside of a loop", name));
    if (name == "break") return BreakStatement{};
    return ContinueStatement{};
  }
  static constexpr std::array<std::string_view, 5> kOtherTemplates = {"include", "import", "from",
                                                                      "extends", "block"};
  if (std::find(kOtherTemplates.begin(), kOtherTemplates.end(), name) != kOtherTemplates.end()) {
    fail(Errc::Unsupported,
         "{}:{}: the tag '{}' is not supported; a chat template has to be complete in itself",
         tree_.name, tag.line, name);
  }
  syntax_error(fmt::format("unknown tag '{}'", name));
}

IfStatement Parser::parse_if() {
  IfStatement statement;
  while (true) {
    ExprPtr test = parse_tuple(Conditional::NotAllowed);
    Block body = parse_body({"elif", "else", "endif"});
    statement.branches.emplace_back(std::move(test), std::move(body));
    const Token end = take();
    if (end.text == "elif") continue;
    if (end.text == "else") statement.otherwise = parse_body_to("endif");
    return statement;
  }
}

ForStatement Parser::parse_for() {
  ForStatement statement;
  statement.target = parse_target(false);
  if (!take_name("in")) syntax_error(fmt::format("expected 'in', got {}", describe(current())));
  statement.iterable = parse_tuple(Conditional::NotAllowed, false, "recursive");
  if (take_name("if")) statement.filter = parse_expression();
  statement.recursive = take_name("recursive");
  ++loop_nesting_;
  statement.body = parse_body({"else", "endfor"});
  --loop_nesting_;
  if (take().text == "else") statement.otherwise = parse_body_to("endfor");
  return statement;
}

Statement::Node Parser::parse_set() {
  Target target = parse_target(true);
  if (take_operator("=")) return SetStatement{std::move(target), parse_tuple()};
  ExprPtr filter = parse_filter_chain(nullptr);
  return SetBlockStatement{std::move(target), std::move(filter), parse_body_to("endset")};
}

MacroStatement Parser::parse_macro() {
  MacroStatement statement;
  statement.macro.name = expect_name();
  statement.name = intern(statement.macro.name);
  macros_.push_back(&statement.macro);
  parse_signature(statement.macro);
  parse_macro_body(statement.macro, "endmacro");
  macros_.pop_back();
  return statement;
}

CallBlockStatement Parser::parse_call_block() {
  CallBlockStatement statement;
  statement.caller.name = "caller";
  macros_.push_back(&statement.caller);
  if (current().is_operator("(")) parse_signature(statement.caller);
  macros_.pop_back();
  statement.call = parse_expression();
  if (!std::holds_alternative<CallExpr>(statement.call->node)) syntax_error("expected a call");
  macros_.push_back(&statement.caller);
  parse_macro_body(statement.caller, "endcall");
  macros_.pop_back();
  return statement;
}

void Parser::parse_signature(MacroDefinition& macro) {
  expect_operator("(");
  bool fallbacks = false;
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    MacroDefinition::Parameter parameter;
    parameter.text = expect_name();
    parameter.name = intern(parameter.text);
    if (take_operator("=")) {
      parameter.fallback = parse_expression();
      fallbacks = true;
    } else if (fallbacks) {
      syntax_error("a parameter without a default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_operator(")");
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view end_tag) {
  const int outer_loops = std::exchange(loop_nesting_, 0);
  macro.body = parse_body_to(end_tag);
  loop_nesting_ = outer_loops;
  for (const auto& parameter : macro.parameters) {
    if (parameter.text == "varargs") macro.uses_varargs = false;
    if (parameter.text == "kwargs") macro.uses_kwargs = false;
  }
}

FilterBlockStatement Parser::parse_filter_block() {
  FilterBlockStatement statement;
  statement.filter = parse_filter_chain(parse_filter(nullptr));
  statement.body = parse_body_to("endfilter");
  return statement;
}

WithStatement Parser::parse_with() {
  WithStatement statement;
  while (current().type == TokenType::Name || current().is_operator("(") ||
         current().is_operator(",")) {
    if (!statement.bindings.empty()) expect_operator(",");
    Target target = parse_target_item();
    expect_operator("=");
    statement.bindings.emplace_back(std::move(target), parse_expression());
  }
  statement.body = parse_body_to("endwith");
  return statement;
}

// ---- targets

Target Parser::parse_target(bool allow_attribute) {
  if (allow_attribute && current().type == TokenType::Name && next().is_operator(".")) {
    const NameId object = intern(take().text);
    take();
    return {Target::Attribute{object, expect_name()}};
  }
  Target first = parse_target_item();
  if (!current().is_operator(",")) return first;
  std::vector<Target> items;
  items.push_back(std::move(first));
  while (take_operator(",")) {
    const bool more = current().is_operator("(") ||
                      (current().type == TokenType::Name && !current().is_name("in"));
    if (!more) break;
    items.push_back(parse_target_item());
  }
  return {std::move(items)};
}

Target Parser::parse_target_item() {
  if (take_operator("(")) {
    if (++expression_nesting_ > kMaxExpressionDepth) {
      fail(Errc::LimitExceeded, "{}:{}: a target is nested more than {} levels deep", tree_.name,
           current().line, kMaxExpressionDepth);
    }
    Target inner = parse_target(false);
    --expression_nesting_;
    expect_operator(")");
    return inner;
  }
  const std::string name = expect_name();
  if (constant_of(name)) syntax_error(fmt::format("cannot assign to '{}'", name));
  return {intern(name)};
}

}  // namespace moeflux::jinja
