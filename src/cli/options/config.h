// The configuration: which files there may be, and what they say about an option. A file of the
// user goes before that of the system, and in a file the [section] of a command before the keys at
// the top, which are for every command that has such an option. docs/CONFIG.md is for users.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_tree.h"
#include "cli/options/config_file.h"

namespace moeflux::cli {

struct ConfigChoice {
  std::optional<std::string> file;  // --config
  bool none = false;                // --no-config
};

struct ConfigPlace {
  std::string path;
  std::string named_by;   // "--config", "MOEFLUX_CONFIG", "user" or "system"
  bool required = false;  // an error when it is not there
};

// For help and man pages.
std::vector<NamedText> config_file_names();

// Where to look, the most important first. Throws UsageError for a choice that contradicts itself.
std::vector<ConfigPlace> config_places(const ConfigChoice& choice);
using ConfigLocator = std::function<std::vector<ConfigPlace>(const ConfigChoice&)>;

struct ConfigValue {
  std::vector<std::string> values;
  bool is_list = false;
  std::string where;  // "/home/me/.config/moeflux/config.toml:12"
};

class Config {
 public:
  Config() = default;
  // Reads those that exist. Throws UsageError, and Error for a file that cannot be read.
  explicit Config(const std::vector<ConfigPlace>& places);

  // Throws UsageError for a section that is no command and a key that is no option of it.
  void check(const CommandTree& tree) const;

  // `option` without its dashes.
  std::optional<ConfigValue> find(const std::string& command, const std::string& option) const;

 private:
  struct Read {
    std::string path;
    ConfigText text;
  };
  std::vector<Read> files_;
};

// ---- one option of a command: where its value goes, and which of its sources counts
//
// Only Option::resolve() knows the order: command line, environment, configuration file, built-in
// default.

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

// A path in a file may begin with "~/", which a shell would have replaced.
std::string expand_home(const std::string& path);

}  // namespace moeflux::cli
