#include "cli/options/config_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "cli/command_line.h"

namespace moeflux::cli {
namespace {

// Each dot of a key nests one more table, and toml++ 3.3 frees nested tables by recursion without
// a limit: a file of 1 MiB could overflow the stack.
constexpr std::size_t kMaxDots = 1000;

[[noreturn]] void refuse(const std::string& path, std::size_t line, const std::string& message) {
  throw UsageError(fmt::format("{}:{}: {}", path, line, message), "config");
}

// The place after the string that begins at `at`. One that does not end in its line, as it must
// without three quotes, ends there: toml++ refuses it.
std::size_t skip_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const std::string_view end =
      std::string_view(three).substr(0, text.substr(at, 3) == three ? 3 : 1);
  at += end.size();
  while (at < text.size() && text.substr(at, end.size()) != end) {
    if (end.size() == 1 && text[at] == '\n') return at;
    at += quote == '"' && text[at] == '\\' ? 2 : 1;
  }
  at += end.size();
  // Up to two quotes may stand before the three that end a string.
  for (int i = 0; i < 2 && end.size() == 3 && at < text.size() && text[at] == quote; ++i) ++at;
  return at;
}

// The line of the dot that is one too many; 0 when there is none. Those in strings and comments do
// not count.
std::size_t find_excess_dot(std::string_view text) {
  std::size_t n_dots = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"' || text[at] == '\'') {
      at = skip_string(text, at);
    } else if (text[at++] == '.' && ++n_dots > kMaxDots) {
      return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + at, '\n'));
    }
  }
  return 0;
}

// What toml++ says, with what to do about the mistake that is made most: text without quotes.
std::string explain(const toml::parse_error& error) {
  constexpr std::string_view kStart = "Error while parsing ";
  constexpr std::string_view kOfValues[] = {
      "integer:", "floating-point:", "boolean:", "value:", "date", "time", "comment"};
  std::string_view what = error.description();
  if (what.starts_with(kStart)) what.remove_prefix(kStart.size());
  const bool unquoted = std::any_of(std::begin(kOfValues), std::end(kOfValues), [&](auto word) {
    return what.find(word) != std::string_view::npos;
  });
  return fmt::format("not valid TOML: {}{}", what,
                     unquoted ? "; text needs quotes, as in ram = \"16G\"" : "");
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  void read_table(const toml::table& table, const std::string& section) {
    for (const auto& [key, node] : table) {
      const int line = static_cast<int>(key.source().begin.line);
      const std::string name(key.str());
      if (const toml::table* inner = node.as_table()) {
        if (!section.empty())
          refuse(path_, key.source().begin.line,
                 fmt::format("{}.{}: a section has no sections; write [{}]", section, name, name));
        out.sections.push_back({name, line});
        read_table(*inner, name);
        continue;
      }
      ConfigEntry entry{section, name, {}, node.is_array(), line};
      if (const toml::array* list = node.as_array()) {
        for (const toml::node& each : *list) entry.values.push_back(text_of(name, each));
      } else {
        entry.values.push_back(text_of(name, node));
      }
      out.entries.push_back(std::move(entry));
    }
  }

  ConfigText out;

 private:
  std::string text_of(const std::string& key, const toml::node& node) const {
    const auto fails = [&](const char* why) {
      refuse(path_, node.source().begin.line, fmt::format("{}: {}", key, why));
    };
    if (const auto* text = node.as_string()) {
      if (text->get().find('\0') != std::string::npos) fails("a string has no \\u0000");
      return text->get();
    }
    if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
    if (const auto* number = node.as_floating_point()) {
      if (!std::isfinite(number->get())) fails("only finite numbers are values; text needs quotes");
      return fmt::format("{:#}", number->get());
    }
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    if (node.is_array() || node.is_table()) fails("a list holds plain values only");
    fails("a date or time is no value of an option; text needs quotes");
    return "";
  }

  const std::string& path_;
};

}  // namespace

ConfigText parse_config(std::string_view text, const std::string& path) {
  if (const std::size_t line = find_excess_dot(text); line > 0)
    refuse(path, line, fmt::format("more than {} dots outside of strings", kMaxDots));
  Reader reader(path);
  try {
    reader.read_table(toml::parse(text, path), "");
  } catch (const toml::parse_error& error) {
    refuse(path, error.source().begin.line, explain(error));
  }
  // A table of toml++ is sorted by name.
  const auto by_line = [](const auto& a, const auto& b) { return a.line < b.line; };
  std::stable_sort(reader.out.sections.begin(), reader.out.sections.end(), by_line);
  std::stable_sort(reader.out.entries.begin(), reader.out.entries.end(), by_line);
  return std::move(reader.out);
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace moeflux::cli
