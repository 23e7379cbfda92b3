#include "cli/options/config.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/suggestion.h"
#include "cli/command_line.h"
#include "cli/options/environment.h"

namespace moeflux::cli {
namespace {

constexpr const char* kSystemFile = "/etc/moeflux/config.toml";

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::vector<std::string> keys_of(const CommandInfo& command) {
  std::vector<std::string> keys;
  for (const OptionInfo& option : command.options) {
    if (option.configurable) keys.push_back(option.key());
  }
  return keys;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Why `entry` is none of the options it may be; "" when it is one.
std::string problem_with(const ConfigEntry& entry, const CommandTree& tree) {
  std::vector<std::string> here, owners;
  for (const CommandInfo& command : tree.commands) {
    const std::vector<std::string> keys = keys_of(command);
    if (contains(keys, entry.key)) owners.push_back(command.name);
    if (entry.section.empty() || entry.section == command.name)
      here.insert(here.end(), keys.begin(), keys.end());
  }
  if (contains(here, entry.key)) return "";
  if (!owners.empty())
    return fmt::format("{} is no option of {}, but of {}", entry.key, entry.section,
                       fmt::join(owners, ", "));
  return fmt::format("unknown option {}{}{}", entry.key,
                     entry.section.empty() ? "" : " of " + entry.section,
                     did_you_mean(entry.key, here));
}

}  // namespace

std::vector<NamedText> config_file_names() {
  return {{"~/.config/moeflux/config.toml", "options of the user; see moeflux config --help"},
          {kSystemFile, "options of the system, for what the user's file does not say"}};
}

std::vector<ConfigPlace> config_places(const ConfigChoice& choice) {
  if (choice.none && choice.file)
    throw UsageError("--config and --no-config exclude each other", "config");
  if (choice.none) return {};
  std::vector<ConfigPlace> places;
  if (choice.file) {
    places.push_back({*choice.file, "--config", true});
  } else if (environment().config) {
    places.push_back({*environment().config, "MOEFLUX_CONFIG", true});
  } else if (environment().config_home) {
    places.push_back({*environment().config_home + "/moeflux/config.toml", "user", false});
  }
  places.push_back({kSystemFile, "system", false});
  return places;
}

Config::Config(const std::vector<ConfigPlace>& places) {
  for (const ConfigPlace& place : places) {
    if (!place.required && !exists(place.path)) continue;
    const std::string text = read_text_file(place.path, kMaxConfigBytes);
    files_.push_back({place.path, parse_config(text, place.path)});
  }
}

void Config::check(const CommandTree& tree) const {
  std::vector<std::string> commands;
  for (const CommandInfo& command : tree.commands) commands.push_back(command.name);
  for (const Read& file : files_) {
    for (const ConfigSection& section : file.text.sections) {
      if (contains(commands, section.name)) continue;
      throw UsageError(fmt::format("{}:{}: [{}] is no command{}", file.path, section.line,
                                   section.name, did_you_mean(section.name, commands)),
                       "config");
    }
    for (const ConfigEntry& entry : file.text.entries) {
      const std::string problem = problem_with(entry, tree);
      if (!problem.empty())
        throw UsageError(fmt::format("{}:{}: {}", file.path, entry.line, problem), "config");
    }
  }
}

std::optional<ConfigValue> Config::find(const std::string& command,
                                        const std::string& option) const {
  for (const Read& file : files_) {
    for (const std::string& section : {command, std::string()}) {
      for (const ConfigEntry& entry : file.text.entries) {
        if (entry.section != section || entry.key != option) continue;
        return ConfigValue{entry.values, entry.is_list,
                           fmt::format("{}:{}", file.path, entry.line)};
      }
    }
  }
  return std::nullopt;
}

std::string expand_home(const std::string& path) {
  const auto& home = environment().home;
  return home && path.starts_with("~/") ? *home + path.substr(1) : path;
}

}  // namespace moeflux::cli
