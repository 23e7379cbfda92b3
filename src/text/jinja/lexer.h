// Cuts a template into tokens, with all whitespace rules of Jinja applied: trim_blocks and
// lstrip_blocks are on, the last newline of the template is dropped, line ends become "\n".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::jinja {

// The largest template and the deepest nesting that are accepted.
inline constexpr std::size_t kMaxTemplateBytes = 1u << 20;
inline constexpr int kMaxExpressionDepth = 400;
inline constexpr int kMaxBlockDepth = 100;

enum class TokenType : std::uint8_t {
  Data,  // text between tags
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,
  End,
};

struct Token {
  TokenType type;
  std::string text;  // Data, Name, String (unescaped), Operator
  std::int64_t integer = 0;
  double real = 0;
  int line = 1;

  bool is_operator(std::string_view op) const { return type == TokenType::Operator && text == op; }
  bool is_name(std::string_view name) const { return type == TokenType::Name && text == name; }
};

// The last token is End. `name` is the template's name for errors.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

// What a token looks like in an error message.
std::string describe(const Token& token);

}  // namespace moeflux::jinja
