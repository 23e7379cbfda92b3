// The tree of a parsed template. It is immutable, holds no state of a rendering and may be rendered
// by many threads at the same time. Names of variables are numbered, so that scopes need no
// strings.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace moeflux::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;
using NameId = std::size_t;

enum class UnaryOp { Not, Negate, Plus };
enum class BinaryOp { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };
enum class CompareOp { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };
enum class LogicalOp { And, Or };

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *list, or null
  ExprPtr star_star;  // **dict, or null
};

struct LiteralExpr {
  Value value;
};
struct NameExpr {
  NameId name;
};
struct SequenceExpr {
  Kind kind;  // List or Tuple
  std::vector<ExprPtr> items;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
struct UnaryExpr {
  UnaryOp op;
  ExprPtr operand;
};
struct BinaryExpr {
  BinaryOp op;
  ExprPtr left, right;
};
struct LogicalExpr {
  LogicalOp op;
  ExprPtr left, right;
};
struct CompareExpr {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;  // a < b < c compares both pairs
};
struct ConcatExpr {
  std::vector<ExprPtr> parts;
};
struct ConditionalExpr {
  ExprPtr test, then, otherwise;  // `otherwise` may be null: undefined
};
struct AttributeExpr {
  ExprPtr object;
  std::string name;
};
struct ItemExpr {
  ExprPtr object, index;
};
struct SliceExpr {
  ExprPtr object, start, stop, step;  // the last three may be null
};
struct CallExpr {
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterExpr {
  ExprPtr input;  // null: the text of the block that the filter is applied to
  std::string name;
  CallArguments arguments;
};
struct TestExpr {
  ExprPtr input;
  std::string name;
  CallArguments arguments;
};

struct Expr {
  using Node = std::variant<LiteralExpr, NameExpr, SequenceExpr, DictExpr, UnaryExpr, BinaryExpr,
                            LogicalExpr, CompareExpr, ConcatExpr, ConditionalExpr, AttributeExpr,
                            ItemExpr, SliceExpr, CallExpr, FilterExpr, TestExpr>;
  Node node;
  int line;
  int depth;  // of the tree below; bounded by the parser
};

// What an assignment or a loop writes to.
struct Target {
  struct Attribute {
    NameId object;
    std::string name;
  };
  std::variant<NameId, Attribute, std::vector<Target>> place;
};

struct Statement;
using Block = std::vector<Statement>;

struct TextStatement {
  StringRef text;
};
struct OutputStatement {
  ExprPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct ForStatement {
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  bool recursive = false;
  Block body, otherwise;
};
struct SetStatement {
  Target target;
  ExprPtr value;
};
struct SetBlockStatement {
  Target target;
  ExprPtr filter;  // may be null
  Block body;
};

// A macro, or the body of a call block as its `caller`.
struct MacroDefinition {
  std::string name;
  struct Parameter {
    NameId name;
    std::string text;
    ExprPtr fallback;  // may be null
  };
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};
struct MacroStatement {
  NameId name;
  MacroDefinition macro;
};
struct CallBlockStatement {
  ExprPtr call;  // a CallExpr
  MacroDefinition caller;
};
struct FilterBlockStatement {
  ExprPtr filter;
  Block body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body;
};
// A body with its own scope and nothing else: generation.
struct ScopeStatement {
  Block body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  using Node =
      std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement,
                   SetBlockStatement, MacroStatement, CallBlockStatement, FilterBlockStatement,
                   WithStatement, ScopeStatement, BreakStatement, ContinueStatement>;
  Node node;
  int line;
};

struct Tree {
  std::string name;                // of the template, for errors
  std::vector<std::string> names;  // of variables, by NameId
  NameId loop, caller, varargs, kwargs;
  Block body;
};

}  // namespace moeflux::jinja
