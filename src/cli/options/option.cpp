// How an option gets its value.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/command_line.h"
#include "cli/options/config.h"
#include "cli/options/environment.h"

namespace moeflux::cli {
namespace {

// Converts the text of an option's value, or says what was expected instead.
const char* convert(const std::string& text, std::string& out) {
  out = text;
  return nullptr;
}
const char* convert(const std::string& text, bool& out) {
  out = text == "true";
  return out || text == "false" ? nullptr : "true or false";
}
const char* convert(const std::string& text, std::int64_t& out) {
  const auto number = to_number<std::int64_t>(text);
  if (number) out = *number;
  return number ? nullptr : "a whole number";
}
const char* convert(const std::string& text, double& out) {
  const auto number = to_number<double>(text);
  if (number) out = *number;
  return number && std::isfinite(out) ? nullptr : "a number";
}
template <class T>
const char* convert(const std::string& text, std::optional<T>& out) {
  return convert(text, out.emplace());
}

std::vector<std::string> texts_of(bool) {
  return {"false"};
}
std::vector<std::string> texts_of(const std::string& value) {
  return value.empty() ? std::vector<std::string>() : std::vector<std::string>{value};
}
std::vector<std::string> texts_of(std::int64_t value) {
  return {std::to_string(value)};
}
std::vector<std::string> texts_of(double value) {
  return {fmt::format("{}", value)};
}
template <class T>
std::vector<std::string> texts_of(const std::optional<T>& value) {
  return value ? texts_of(*value) : std::vector<std::string>();
}

template <class T>
OptionTarget one_value(OptionKind kind, T& variable) {
  return {kind, texts_of(variable),
          [&variable](const auto& values) { return convert(values.back(), variable); }};
}

// `where` is "--ram", "MOEFLUX_RAM" or "config.toml:3: ram".
void assign(const OptionTarget& target, const std::vector<std::string>& choices,
            const std::vector<std::string>& values, const std::string& where,
            const std::string& command) {
  if (!choices.empty() &&
      std::find(choices.begin(), choices.end(), values.back()) == choices.end()) {
    throw UsageError(
        fmt::format("{}: \"{}\" is not one of {}", where, values.back(), fmt::join(choices, ", ")),
        command);
  }
  if (const char* expected = target.assign(values)) {
    throw UsageError(fmt::format("{}: \"{}\" is not {}", where, values.back(), expected), command);
  }
}

}  // namespace

OptionTarget target_of(bool& variable) {
  return one_value(OptionKind::Flag, variable);
}
OptionTarget target_of(std::string& variable) {
  return one_value(OptionKind::Text, variable);
}
OptionTarget target_of(std::int64_t& variable) {
  return one_value(OptionKind::Integer, variable);
}
OptionTarget target_of(double& variable) {
  return one_value(OptionKind::Number, variable);
}
OptionTarget target_of(std::optional<std::string>& variable) {
  return one_value(OptionKind::Text, variable);
}
OptionTarget target_of(std::optional<std::int64_t>& variable) {
  return one_value(OptionKind::Integer, variable);
}
OptionTarget target_of(std::optional<double>& variable) {
  return one_value(OptionKind::Number, variable);
}
OptionTarget target_of(std::vector<std::string>& variable) {
  return {OptionKind::List, variable, [&variable](const std::vector<std::string>& values) {
            variable = values;
            return static_cast<const char*>(nullptr);
          }};
}

Setting Option::resolve(const std::string& command,
                        const std::optional<std::vector<std::string>>& given,
                        const Config& config) const {
  const std::string key = info.key();
  if (given) {
    assign(target, choices, *given, "--" + key, command);
    const bool is_list = target.kind == OptionKind::List;
    return {info, is_list ? *given : std::vector<std::string>{given->back()},
            OptionSource::CommandLine, "command line"};
  }
  const OptionTarget& other = fallback ? *fallback : target;
  if (!info.environment.empty()) {
    if (const auto found = environment_value(info.environment)) {
      const std::string text = environment_meaning.empty() ? *found : environment_meaning;
      assign(other, choices, {text}, info.environment, command);
      return {info, {text}, OptionSource::Environment, "environment " + info.environment};
    }
  }
  std::optional<ConfigValue> found = info.configurable ? config.find(command, key) : std::nullopt;
  if (!found) return {info, info.defaults, OptionSource::Default, "default"};
  const std::string where = fmt::format("{}: {}", found->where, key);
  if (found->is_list && other.kind != OptionKind::List)
    throw UsageError(fmt::format("{} takes one value, not a list", where), command);
  if (info.names_a_file()) {
    for (std::string& value : found->values) value = expand_home(value);
  }
  assign(other, choices, found->values, where, command);
  return {info, std::move(found->values), OptionSource::File, std::move(found->where)};
}

}  // namespace moeflux::cli
