// moeflux config: what every option is set to and by whom, where the files are, and a first one.
#include "cli/options/config.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/options/environment.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr const char* kIntroduction =
    "# Options of moeflux. What the command line or the environment say goes before this file.\n"
    "# Options at the top are for every command that has them; those in a section such as [serve]\n"
    "# are for that command only, and every command may have one. Take away the # to set an\n"
    "# option. moeflux config show tells what is set and by whom.\n";

// Those that people start with the same options again and again.
constexpr const char* kCommands[] = {"run", "chat", "serve"};

bool has(const CommandInfo& command, const std::string& key) {
  return std::any_of(command.options.begin(), command.options.end(), [&](const OptionInfo& option) {
    return option.configurable && option.key() == key;
  });
}

// A value to begin with: the default, or one that shows the form.
std::string sample(const OptionInfo& option) {
  if (option.secret) return option.kind == OptionKind::List ? "[\"...\"]" : "\"...\"";
  if (option.kind == OptionKind::Flag) return "true";
  if (option.kind == OptionKind::List) return "[]";
  const bool is_number = option.kind != OptionKind::Text;
  if (option.defaults.empty()) return is_number ? "0" : "\"\"";
  return is_number ? option.defaults[0] : toml_string(option.defaults[0]);
}

std::string example_config(const CommandTree& tree) {
  std::vector<const CommandInfo*> commands;
  for (const char* name : kCommands) {
    if (const CommandInfo* command = tree.find(name)) commands.push_back(command);
  }
  const auto is_shared = [&](const OptionInfo& option) {
    return std::all_of(commands.begin(), commands.end(),
                       [&](const CommandInfo* command) { return has(*command, option.key()); });
  };
  std::string top, sections;
  for (const CommandInfo* command : commands) {
    sections += fmt::format("\n\n# [{}]\n", command->name);
    for (const OptionInfo& option : command->options) {
      if (!option.configurable) continue;
      const bool shared = is_shared(option);
      if (shared && command != commands[0]) continue;
      (shared ? top : sections) +=
          fmt::format("\n# {}\n# {} = {}\n", option.help, option.key(), sample(option));
    }
  }
  return kIntroduction + top + sections;
}

namespace fs = std::filesystem;

constexpr std::size_t kOriginColumn = 40;
constexpr std::size_t kMaxArguments = 1000;
constexpr const char* kMask = "********";

struct ConfigArguments {
  ConfigChoice choice;
  bool json = false, changed = false, force = false;
};

std::vector<std::string> shown_values(const Setting& setting) {
  if (!setting.option.secret) return setting.values;
  return std::vector<std::string>(setting.values.size(), kMask);
}

std::string value_text(const Setting& setting) {
  const OptionKind kind = setting.option.kind;
  const bool is_text = kind == OptionKind::Text || kind == OptionKind::List;
  std::vector<std::string> texts;
  for (const std::string& value : shown_values(setting))
    texts.push_back(is_text ? toml_string(value) : value);
  return kind == OptionKind::List ? fmt::format("[{}]", fmt::join(texts, ", ")) : texts[0];
}

Json value_json(const Setting& setting) {
  const std::vector<std::string> values = shown_values(setting);
  if (setting.option.kind == OptionKind::List) return values;
  if (values.empty()) return nullptr;
  if (setting.option.kind == OptionKind::Text) return values[0];
  if (setting.option.kind == OptionKind::Flag) return values[0] == "true";
  if (setting.option.kind == OptionKind::Integer) return std::stoll(values[0]);
  return std::stod(values[0]);
}

// As a configuration file would have it, so that it can be one. An option that has no value or
// that files cannot set is a comment.
std::string setting_line(const Setting& setting) {
  std::string line = setting.option.key();
  const bool has_value = !setting.values.empty() || setting.option.kind == OptionKind::List;
  if (has_value) line += " = " + value_text(setting);
  if (!has_value || !setting.option.configurable) line.insert(0, "# ");
  return fmt::format("{:<{}} # {}\n", line, kOriginColumn, setting.origin);
}

Json setting_json(const Setting& setting) {
  constexpr const char* kSources[] = {"default", "file", "environment", "command line"};
  Json json = {{"value", value_json(setting)},
               {"source", kSources[static_cast<int>(setting.source)]}};
  if (setting.source == OptionSource::File) json["where"] = setting.origin;
  if (setting.source == OptionSource::Environment) json["where"] = setting.option.environment;
  return json;
}

bool has_settings(const CommandInfo& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const OptionInfo& option) { return option.configurable; });
}

// `arguments` are the command, if one is named, and what it would be given.
int show(CommandLine& line, const ConfigArguments& options, std::vector<std::string> arguments) {
  std::vector<std::string> commands;
  if (arguments.empty()) {
    for (const CommandInfo& each : line.tree().commands) {
      if (has_settings(each)) commands.push_back(each.name);
    }
  } else {
    commands.push_back(arguments[0]);
    arguments.erase(arguments.begin());
  }
  std::string text;
  Json json = Json::object();
  for (const std::string& command : commands) {
    std::string lines;
    for (const Setting& setting : line.settings(command, arguments, options.choice)) {
      if (options.changed && setting.source == OptionSource::Default) continue;
      lines += setting_line(setting);
      json[command][setting.option.key()] = setting_json(setting);
    }
    if (!lines.empty()) text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", command, lines);
  }
  write_stdout(options.json ? dump_json(json, 2) + "\n" : text);
  return kSuccess;
}

int paths(const CommandLine& line, const ConfigArguments& options) {
  Json json = Json::array();
  std::string text;
  for (const ConfigPlace& place : line.config_places(options.choice)) {
    std::error_code error;
    const bool exists = fs::exists(place.path, error);
    json.push_back({{"path", place.path}, {"named_by", place.named_by}, {"exists", exists}});
    text += fmt::format("{:<14}  {:<7}  {}\n", place.named_by, exists ? "exists" : "missing",
                        place.path);
  }
  write_stdout(options.json ? dump_json(json, 2) + "\n" : text);
  return kSuccess;
}

int init(const CommandLine& line, const ConfigArguments& options) {
  const std::vector<ConfigPlace> places = line.config_places(options.choice);
  if (places.empty() || places[0].named_by == "system")
    fail(Errc::NotFound, "there is no home for a configuration file; name one: --config FILE");
  const std::string& path = places[0].path;
  std::error_code error;
  if (!options.force && fs::exists(fs::symlink_status(path, error)))
    fail(Errc::BadInput, "{}: exists already; --force writes another one", path);
  make_private_parent(path);
  AtomicFile file(path, FileAccess::Private);  // keys of servers may be written into it
  file.write(example_config(line.tree()));
  file.commit();
  write_stdout(path + "\n");
  return kSuccess;
}

int run(CommandLine& line, const ConfigArguments& options,
        const std::vector<std::string>& arguments) {
  const std::string action = arguments.empty() ? "show" : arguments[0];
  if (action == "show") {
    return show(line, options, {arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end()});
  }
  if (arguments.size() > 1)
    throw UsageError(fmt::format("unexpected argument \"{}\"", arguments[1]));
  if (action == "path") return paths(line, options);
  if (action == "init") return init(line, options);
  throw UsageError(fmt::format("config cannot \"{}\", only show, path, init", action));
}

}  // namespace

void add_config_command(CommandLine& line) {
  const auto options = std::make_shared<ConfigArguments>();
  Command& command =
      line.add("config", "Show what options are set to and where; write a first file.");
  command.without_config().arguments("[show [COMMAND [-- OPTIONS]] | path | init]", kMaxArguments);
  command.group("Options")
      .flag("--changed", options->changed, "show only what is not the default")
      .flag("--json", options->json, "print JSON")
      .flag("--force", options->force, "init: replace the file that is there")
      .option("--config", options->choice.file, "FILE", "the file to read or write")
      .flag("--no-config", options->choice.none, "ignore configuration files");
  command.example("config show serve")
      .example("config show run -- --ram 8G")
      .example("config path")
      .example("config init");
  command.note("An option is what the command line says, else its environment variable, else the")
      .note("user's configuration file, else that of the system, else the default. In a file, the")
      .note("section of a command goes before the top, which is for all commands:")
      .note("")
      .note("  ram = \"16G\"")
      .note("  models = \"/data/models\"")
      .note("  [serve]")
      .note("  port = 8080");
  command.run([options, &line](const std::vector<std::string>& arguments) {
    return run(line, *options, arguments);
  });
}

}  // namespace moeflux::cli
