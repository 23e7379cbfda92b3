#include "text/replies/reply_json.h"

#include <fmt/format.h>

namespace moeflux {
namespace {

constexpr std::size_t kMaxDepth = 256;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

void append_json_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x20) {
    out += fmt::format("\\u{:04x}", byte);
  } else {
    out += c;
  }
}

}  // namespace

JsonScanner::Step JsonScanner::feed(char c, std::string& out) {
  switch (state_) {
    case State::Value:
      return is_blank(c) ? blank(c, out) : begin_value(c, out);
    case State::ArrayStart:
      if (is_blank(c)) return blank(c, out);
      return c == ']' ? close(c, out) : begin_value(c, out);
    case State::ObjectStart:
    case State::Key:
      if (is_blank(c)) return blank(c, out);
      if (c == '}' && state_ == State::ObjectStart) return close(c, out);
      if (c != '"') return Step::Bad;
      is_key_ = true;
      state_ = State::String;
      out += c;
      return Step::More;
    case State::Colon:
      if (is_blank(c)) return blank(c, out);
      if (c != ':') return Step::Bad;
      state_ = State::Value;
      out += c;
      return Step::More;
    case State::AfterValue:
      return after_value(c, out);
    case State::String:
    case State::Escape:
    case State::Hex:
      return string(c, out);
    case State::Literal:
      if (c != literal_.front()) return Step::Bad;
      literal_.remove_prefix(1);
      out += c;
      return literal_.empty() ? value_done() : Step::More;
    default:
      return number(c, out);
  }
}

JsonScanner::Step JsonScanner::blank(char c, std::string& out) const {
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::begin_value(char c, std::string& out) {
  switch (c) {
    case '{':
      return open(c, State::ObjectStart, out);
    case '[':
      return open(c, State::ArrayStart, out);
    case '"':
      is_key_ = false;
      state_ = State::String;
      break;
    case '-':
      state_ = State::Minus;
      break;
    case '0':
      state_ = State::Zero;
      break;
    case 't':
    case 'f':
    case 'n':
      literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::Literal;
      break;
    default:
      if (!is_digit(c)) return Step::Bad;
      state_ = State::Integer;
  }
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::open(char c, State next, std::string& out) {
  if (open_.size() == kMaxDepth) return Step::Bad;
  open_.push_back(c);
  state_ = next;
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::close(char c, std::string& out) {
  open_.pop_back();
  out += c;
  return value_done();
}

JsonScanner::Step JsonScanner::value_done() {
  state_ = State::AfterValue;
  return open_.empty() ? Step::Done : Step::More;
}

JsonScanner::Step JsonScanner::after_value(char c, std::string& out) {
  if (is_blank(c)) return blank(c, out);
  const bool in_object = open_.back() == '{';
  if (c == (in_object ? '}' : ']')) return close(c, out);
  if (c != ',') return Step::Bad;
  state_ = in_object ? State::Key : State::Value;
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::string(char c, std::string& out) {
  if (state_ == State::Escape) {
    constexpr std::string_view kEscapes = "\"\\/bfnrtu";
    if (kEscapes.find(c) == std::string_view::npos) return Step::Bad;
    state_ = c == 'u' ? State::Hex : State::String;
    n_hex_ = 4;
  } else if (state_ == State::Hex) {
    if (!is_hex(c)) return Step::Bad;
    if (--n_hex_ == 0) state_ = State::String;
  } else if (c == '\\') {
    state_ = State::Escape;
  } else if (c == '"') {
    out += c;
    if (!is_key_) return value_done();
    state_ = State::Colon;
    return Step::More;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    append_json_escaped(out, c);
    return Step::More;
  }
  out += c;
  return Step::More;
}

bool JsonScanner::number_may_end() const {
  return state_ == State::Zero || state_ == State::Integer || state_ == State::Fraction ||
         state_ == State::ExponentDigits;
}

// The state after one more byte of a number; `bad` when it cannot be part of it.
JsonScanner::State JsonScanner::number_after(char c, bool& bad) const {
  const bool whole = state_ == State::Zero || state_ == State::Integer;
  if (is_digit(c)) {
    switch (state_) {
      case State::Minus:
        return c == '0' ? State::Zero : State::Integer;
      case State::Integer:
        return State::Integer;
      case State::Point:
      case State::Fraction:
        return State::Fraction;
      case State::Exponent:
      case State::ExponentSign:
      case State::ExponentDigits:
        return State::ExponentDigits;
      default:
        break;
    }
  } else if (c == '.' && whole) {
    return State::Point;
  } else if ((c == 'e' || c == 'E') && (whole || state_ == State::Fraction)) {
    return State::Exponent;
  } else if ((c == '+' || c == '-') && state_ == State::Exponent) {
    return State::ExponentSign;
  }
  bad = true;
  return state_;
}

JsonScanner::Step JsonScanner::number(char c, std::string& out) {
  bool bad = false;
  const State next = number_after(c, bad);
  if (!bad) {
    state_ = next;
    out += c;
    return Step::More;
  }
  if (!number_may_end()) return Step::Bad;
  if (open_.empty()) return Step::DoneBefore;
  state_ = State::AfterValue;
  return after_value(c, out);
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) append_json_escaped(out, c);
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  out += '"';
  return out;
}

}  // namespace moeflux
