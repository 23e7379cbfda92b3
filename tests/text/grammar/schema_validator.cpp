#include "text/grammar/schema_validator.h"

#include <cmath>
#include <cstdio>
#include <regex>
#include <set>
#include <stdexcept>

#include "base/utf8.h"

namespace moeflux::test {
namespace {

std::size_t n_characters(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); ++n) at += decode_utf8(text, at).length;
  return n;
}

// Characters instead of bytes.
std::wstring wide(const std::string& text) {
  std::wstring out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    out += static_cast<wchar_t>(step.code_point);
    at += step.length;
  }
  return out;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  }
  throw std::logic_error("type " + type);
}

bool is_date(const std::string& text) {
  int y = 0, m = 0, d = 0, n = 0;
  if (text.size() != 10) return false;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &y, &m, &d, &n) != 3 || n != 10) return false;
  const bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
  const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1];
}

bool is_time(const std::string& text) {
  std::smatch part;
  static const std::regex shape(R"((\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-](\d\d):(\d\d)))");
  if (!std::regex_match(text, part, shape)) return false;
  const auto below = [&](std::size_t i, int limit) {
    return !part[i].matched || std::stoi(part[i]) < limit;
  };
  return below(1, 24) && below(2, 60) && below(3, 60) && below(6, 24) && below(7, 60);
}

bool is_ipv4(const std::string& text) {
  int a = 0, b = 0, c = 0, d = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d.%d.%d.%d%c", &a, &b, &c, &d, &rest) != 4) return false;
  return std::max({a, b, c, d}) <= 255 && std::min({a, b, c, d}) >= 0 &&
         text == std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c) + "." +
                     std::to_string(d);
}

bool has_format(const std::string& text, const std::string& format) {
  if (format == "date") return is_date(text);
  if (format == "time") return is_time(text);
  if (format == "date-time") {
    return text.size() > 11 && (text[10] == 'T') && is_date(text.substr(0, 10)) &&
           is_time(text.substr(11));
  }
  if (format == "ipv4") return is_ipv4(text);
  const auto matches = [&](const char* shape) { return std::regex_match(text, std::regex(shape)); };
  if (format == "uuid") {
    return matches("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
  }
  if (format == "email") return matches("[^@\\s]+@[^@\\s.]+(\\.[^@\\s.]+)+");
  if (format == "hostname") return text.size() <= 253 && matches("[A-Za-z0-9.-]+");
  throw std::logic_error("format " + format);
}

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  std::string check(const Json& schema, const Json& value, const std::string& at) {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at + ": false";
    const bool null_is_fine = schema.value("nullable", false) && value.is_null();
    for (const auto& [keyword, argument] : schema.items()) {
      if (null_is_fine && (keyword == "type" || keyword == "enum")) continue;
      std::string why = check_keyword(schema, keyword, argument, value, at);
      if (!why.empty()) return why;
    }
    return "";
  }

 private:
  std::string check_keyword(const Json& schema, const std::string& keyword, const Json& argument,
                            const Json& value, const std::string& at) {
    static const std::set<std::string> ignored = {"$defs", "title", "description", "nullable"};
    if (ignored.contains(keyword)) return "";
    const auto unless = [&](bool valid) {
      return valid ? "" : at + ": " + keyword + " " + argument.dump() + " refuses " + value.dump();
    };
    if (keyword == "type") {
      if (argument.is_string()) return unless(has_type(value, argument));
      return unless(std::any_of(argument.begin(), argument.end(),
                                [&](const Json& type) { return has_type(value, type); }));
    }
    if (keyword == "const") return unless(value == argument);
    if (keyword == "enum") {
      return unless(std::find(argument.begin(), argument.end(), value) != argument.end());
    }
    if (keyword == "not") return unless(!check(argument, value, at).empty());
    if (keyword == "if") {
      const char* then = check(argument, value, at).empty() ? "then" : "else";
      return schema.contains(then) ? check(schema[then], value, at) : "";
    }
    if (keyword == "$ref") {
      const std::string pointer = argument.get<std::string>().substr(1);
      return check(root_.at(Json::json_pointer(pointer)), value, at);
    }
    if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf") {
      std::size_t n = 0;
      for (const Json& part : argument) n += check(part, value, at).empty() ? 1 : 0;
      return unless(keyword == "allOf"   ? n == argument.size()
                    : keyword == "anyOf" ? n > 0
                                         : n == 1);
    }
    if (value.is_string()) return check_string(keyword, argument, value, unless);
    if (value.is_number()) return check_number(keyword, argument, value.get<double>(), unless);
    if (value.is_array()) return check_array(schema, keyword, argument, value, at);
    if (value.is_object()) return check_object(schema, keyword, argument, value, at);
    return "";
  }

  template <class Unless>
  static std::string check_string(const std::string& keyword, const Json& argument,
                                  const std::string& text, const Unless& unless) {
    if (keyword == "minLength") return unless(n_characters(text) >= argument.get<std::size_t>());
    if (keyword == "maxLength") return unless(n_characters(text) <= argument.get<std::size_t>());
    if (keyword == "pattern") {
      return unless(std::regex_search(wide(text), std::wregex(wide(argument))));
    }
    if (keyword == "format") return unless(has_format(text, argument));
    return "";
  }

  template <class Unless>
  static std::string check_number(const std::string& keyword, const Json& argument, double number,
                                  const Unless& unless) {
    if (!argument.is_number()) return "";
    const double bound = argument.get<double>();
    if (keyword == "minimum") return unless(number >= bound);
    if (keyword == "maximum") return unless(number <= bound);
    if (keyword == "exclusiveMinimum") return unless(number > bound);
    if (keyword == "exclusiveMaximum") return unless(number < bound);
    if (keyword == "multipleOf")
      return unless(std::abs(number / bound - std::round(number / bound)) < 1e-6);
    return "";
  }

  std::string check_array(const Json& schema, const std::string& keyword, const Json& argument,
                          const Json& value, const std::string& at) {
    const std::size_t n_fixed = schema.value("prefixItems", Json::array()).size();
    if (keyword == "minItems" && value.size() < argument.get<std::size_t>()) return at + ": few";
    if (keyword == "maxItems" && value.size() > argument.get<std::size_t>()) return at + ": many";
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string item = at + "/" + std::to_string(i);
      std::string why;
      if (keyword == "prefixItems" && i < n_fixed) why = check(argument[i], value[i], item);
      if (keyword == "items" && i >= n_fixed) why = check(argument, value[i], item);
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string check_object(const Json& schema, const std::string& keyword, const Json& argument,
                           const Json& value, const std::string& at) {
    if (keyword == "minProperties" && value.size() < argument.get<std::size_t>())
      return at + ": few";
    if (keyword == "maxProperties" && value.size() > argument.get<std::size_t>())
      return at + ": many";
    if (keyword == "required") {
      for (const Json& name : argument) {
        if (!value.contains(name.get<std::string>())) return at + ": without " + name.dump();
      }
    }
    const Json named = schema.value("properties", Json::object());
    const Json patterns = schema.value("patternProperties", Json::object());
    for (const auto& [name, member] : value.items()) {
      std::string why;
      if (keyword == "properties" && argument.contains(name)) {
        why = check(argument[name], member, at + "/" + name);
      }
      bool matched = false;
      for (const auto& [pattern, inner] : patterns.items()) {
        if (!std::regex_search(wide(name), std::wregex(wide(pattern)))) continue;
        matched = true;
        if (keyword == "patternProperties" && why.empty()) {
          why = check(inner, member, at + "/" + name);
        }
      }
      if (keyword == "additionalProperties" && !named.contains(name) && !matched) {
        why = check(argument, member, at + "/" + name);
      }
      if (!why.empty()) return why;
    }
    return "";
  }

  const Json& root_;
};

}  // namespace

std::string find_violation(const Json& schema, const Json& value) {
  return Validator(schema).check(schema, value, "");
}

}  // namespace moeflux::test
