// One option of a command: where its value goes, and which of its sources counts. This is the only
// place that knows the order: command line, environment, configuration file, built-in default.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_tree.h"
#include "cli/options/config.h"

namespace moeflux::cli {

// How text becomes the value of a variable.
struct OptionTarget {
  OptionKind kind = OptionKind::Text;
  std::vector<std::string> defaults;  // what it holds at the start
  // Returns null, or what was expected instead: "a whole number".
  std::function<const char*(const std::vector<std::string>&)> assign;
};
OptionTarget target_of(bool& variable);
OptionTarget target_of(std::string& variable);
OptionTarget target_of(std::int64_t& variable);
OptionTarget target_of(double& variable);
OptionTarget target_of(std::optional<std::string>& variable);  // these are empty unless given
OptionTarget target_of(std::optional<std::int64_t>& variable);
OptionTarget target_of(std::optional<double>& variable);
OptionTarget target_of(std::vector<std::string>& variable);

enum class OptionSource { Default, File, Environment, CommandLine };

// What an option has come to be.
struct Setting {
  OptionInfo option;
  std::vector<std::string> values;  // empty: none
  OptionSource source = OptionSource::Default;
  std::string origin;  // "default", "config.toml:3", "environment MOEFLUX_RAM", "command line"
};

struct Option {
  OptionInfo info;
  OptionTarget target;
  std::optional<OptionTarget> fallback;  // for what is not from the command line
  std::string environment_meaning;       // what it means that the variable is set; "": its value
  std::vector<std::string> choices;      // the only values there are; none: any

  // Chooses and assigns. `given` is what the command line has, if anything. Throws UsageError that
  // names the source and what it accepts.
  Setting resolve(const std::string& command, const std::optional<std::vector<std::string>>& given,
                  const Config& config) const;
};

}  // namespace moeflux::cli
