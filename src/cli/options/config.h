// The configuration: which files there may be, and what they say about an option. A file of the
// user goes before that of the system, and in a file the [section] of a command before the keys at
// the top, which are for every command that has such an option. docs/CONFIG.md is for users.
#pragma once

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

// A path in a file may begin with "~/", which a shell would have replaced.
std::string expand_home(const std::string& path);

}  // namespace moeflux::cli
