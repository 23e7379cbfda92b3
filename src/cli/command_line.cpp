#include "cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/suggestion.h"
#include "cli/foreign_words.h"
#include "cli/help.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

// Brings the arguments of a command into a form that needs no interpretation: each option by
// itself, its value in the argument after it, and apart from them what is no option.
class Splitter {
 public:
  using TakesValue = std::function<bool(const std::string&)>;

  // `translate`: the name here of an option as others call it ("-sys" -> "--system"), or the same.
  // `takes_value`: whether a value follows "-n" or "--predict". Both throw UsageError for what is
  // no option.
  using Translate = std::function<std::string(const std::string&)>;

  Splitter(const std::string& command, const std::vector<std::string>& arguments,
           Translate translate, TakesValue takes_value)
      : command_(command), arguments_(arguments), takes_value_(std::move(takes_value)) {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_++];
      const std::size_t equals =
          argument.starts_with("--") ? argument.find('=') : std::string::npos;
      if (argument == "--" || !argument.starts_with('-'))
        add(argument);
      else
        add(translate(argument.substr(0, equals)) +
            (equals == std::string::npos ? "" : argument.substr(equals)));
    }
  }

  // "--predict", "5", "-q"; a flag that is given a value is one argument: "--quiet=false".
  std::vector<std::string> options;
  std::vector<std::string> plain;

 private:
  void add(const std::string& argument) {
    if (argument == "--") {
      plain.insert(plain.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(next_),
                   arguments_.end());
      next_ = arguments_.size();
    } else if (argument.size() < 2 || argument[0] != '-') {  // a lone "-" is standard input
      plain.push_back(argument);
    } else if (argument[1] == '-') {
      add_long(argument);
    } else {
      add_short(argument);
    }
  }

  void add_long(const std::string& argument) {  // --quiet, --number 5, --number=5
    const std::size_t equals = argument.find('=');
    options.push_back(argument.substr(0, equals));
    if (takes_value_(options.back())) {
      add_value(equals == std::string::npos ? nullptr : &argument[equals + 1]);
    } else if (equals != std::string::npos) {
      // Only this way can a flag that a configuration file sets be taken back.
      const std::string value = argument.substr(equals + 1);
      if (value != "true" && value != "false")
        throw UsageError(fmt::format("{} takes no value", options.back()), command_);
      options.back() = argument;
    }
  }

  void add_short(const std::string& argument) {  // -q, -qv, -n5, -n 5
    for (std::size_t at = 1; at < argument.size(); ++at) {
      options.push_back({'-', argument[at]});
      if (!takes_value_(options.back())) continue;
      add_value(at + 1 == argument.size() ? nullptr : &argument[at + 1]);
      return;
    }
  }

  void add_value(const char* given) {  // null: it is the next argument
    if (given == nullptr && next_ == arguments_.size()) {
      throw UsageError(fmt::format("{} needs a value", options.back()), command_);
    }
    if (given != nullptr) {
      options.emplace_back(given);
    } else {
      options.push_back(arguments_[next_++]);
    }
  }

  const std::string& command_;  // for messages
  const std::vector<std::string>& arguments_;
  TakesValue takes_value_;
  std::size_t next_ = 0;  // of arguments_
};

// An option, and what CLI11 made of it.
struct Declared {
  CLI::Option* parsed = nullptr;
  Option option;
};

}  // namespace

struct Command::State {
  State(std::string command_name, const std::string& description)
      : name(std::move(command_name)), app(description, name) {
    app.set_help_flag();
  }

  void declare(CLI::Option* option, OptionTarget target, const std::string& value);
  Declared& last();
  bool has(const std::string& option) const;
  std::string translate(const std::string& option) const;
  bool takes_value(const std::string& option) const;  // throws UsageError for an unknown one
  std::vector<std::string> parse(const std::vector<std::string>& arguments);  // returns the plain
  void resolve(const Config& config);
  // Where the value was set that the message is about; "" when that is the command line.
  std::string blame(const std::string& message) const;
  CommandInfo info(bool has_config) const;

  std::string name;
  bool hidden = false, reads_config = true;
  CLI::App app;
  std::string group = "Options";
  std::vector<Declared> options;
  std::vector<Setting> settings;  // after resolve()
  std::map<std::string, std::string> spellings;
  std::string usage;
  std::size_t max_arguments = 0;
  std::vector<std::string> examples, notes;
  std::function<int(const std::vector<std::string>&)> body;
};

void Command::State::declare(CLI::Option* option, OptionTarget target, const std::string& value) {
  option->allow_extra_args(false);
  target.kind == OptionKind::List ? option->take_all() : option->take_last();
  Declared& declared = options.emplace_back();
  declared.parsed = option;
  OptionInfo& info = declared.option.info;
  for (const std::string& each : option->get_snames()) info.names.push_back("-" + each);
  for (const std::string& each : option->get_lnames()) info.names.push_back("--" + each);
  info.value = value;
  info.help = option->get_description();
  info.group = group;
  info.kind = target.kind;
  info.defaults = target.defaults;
  declared.option.target = std::move(target);
}

Declared& Command::State::last() {
  MOEFLUX_ASSERT(!options.empty());
  return options.back();
}

bool Command::State::has(const std::string& option) const {
  const auto all = app.get_options();
  return std::any_of(all.begin(), all.end(),
                     [&](const CLI::Option* each) { return each->check_name(option); });
}

// A name that is an option here is never taken for anybody else's.
std::string Command::State::translate(const std::string& option) const {
  if (const auto own = spellings.find(option); own != spellings.end()) return own->second;
  const ForeignWord* foreign = find_foreign(foreign_options(), option);
  if (foreign == nullptr || has(option)) return option;
  if (!foreign->ours.empty() && has(std::string(foreign->ours))) return std::string(foreign->ours);
  if (foreign->ours.empty())
    throw UsageError(fmt::format("unknown option {}{}", option, foreign->advice), name);
  throw UsageError(fmt::format("unknown option {}; it means {}, which {} does not have", option,
                               foreign->ours, name),
                   name);
}

bool Command::State::takes_value(const std::string& given) const {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_name(given)) return option->get_items_expected_max() > 0;
    for (const std::string& each : option->get_lnames()) known.push_back("--" + each);
  }
  const bool is_long = given.compare(0, 2, "--") == 0;
  throw UsageError(fmt::format("unknown option {}{}", given,
                               is_long ? did_you_mean(given, known)
                                       : "; write -- before text that starts with a dash"),
                   name);
}

std::vector<std::string> Command::State::parse(const std::vector<std::string>& arguments) {
  Splitter split(
      name, arguments, [this](const std::string& option) { return translate(option); },
      [this](const std::string& option) { return takes_value(option); });
  try {
    std::reverse(split.options.begin(), split.options.end());  // CLI11 takes them from the back
    app.parse(std::move(split.options));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), name);
  }
  return split.plain;
}

void Command::State::resolve(const Config& config) {
  settings.clear();
  for (const Declared& each : options) {
    std::optional<std::vector<std::string>> given;
    if (each.parsed->count() > 0) given = each.parsed->results();
    settings.push_back(each.option.resolve(name, given, config));
  }
}

std::string Command::State::blame(const std::string& message) const {
  for (const Setting& setting : settings) {
    const std::string option = "--" + setting.option.key();
    const bool is_about = message.starts_with(option) && message.size() > option.size() &&
                          std::string_view(": ").find(message[option.size()]) != std::string::npos;
    if (is_about &&
        (setting.source == OptionSource::File || setting.source == OptionSource::Environment))
      return fmt::format(" (set by {})", setting.origin);
  }
  return "";
}

CommandInfo Command::State::info(bool has_config) const {
  CommandInfo info{.name = name,
                   .description = app.get_description(),
                   .usage = usage,
                   .options = {},
                   .examples = examples,
                   .notes = notes};
  for (const Declared& each : options) {
    info.options.push_back(each.option.info);
    if (!reads_config) info.options.back().configurable = false;
  }
  const auto add = [&](std::vector<std::string> names, const char* value, const char* help) {
    OptionInfo option{std::move(names), value, help, "General"};
    option.configurable = false;
    info.options.push_back(std::move(option));
  };
  if (has_config && reads_config) {
    add({"--config"}, "FILE", "the configuration file [env: MOEFLUX_CONFIG]");
    add({"--no-config"}, "", "ignore configuration files");
  }
  add({"-h", "--help"}, "", "show this help");
  return info;
}

Command::Command(std::string name, const std::string& description)
    : state_(std::make_unique<State>(std::move(name), description)) {}
Command::~Command() = default;

Command& Command::group(std::string title) {
  state_->group = std::move(title);
  return *this;
}

Command& Command::flag(const std::string& names, bool& target, const std::string& help) {
  state_->declare(state_->app.add_flag(names, help), target_of(target), "");
  return *this;
}

Command& Command::add_option(const std::string& names, OptionTarget target,
                             const std::string& value, const std::string& help) {
  CLI::Option* option = state_->app.add_option(names, CLI::callback_t(), help);
  state_->declare(option, std::move(target), value);
  return *this;
}

Command& Command::choices(std::vector<std::string> values) {
  state_->last().option.choices = std::move(values);
  return *this;
}

Command& Command::env(const std::string& variable, const std::string& meaning) {
  Declared& declared = state_->last();
  OptionInfo& info = declared.option.info;
  info.environment = variable;
  info.help += fmt::format(" [env: {}]", variable);
  declared.option.environment_meaning = meaning;
  return *this;
}

Command& Command::fallback(std::optional<std::string>& target) {
  state_->last().option.fallback = target_of(target);
  return *this;
}

Command& Command::secret() {
  state_->last().option.info.secret = true;
  return *this;
}

Command& Command::command_line_only() {
  state_->last().option.info.configurable = false;
  return *this;
}

Command& Command::spelling(const std::string& other, const std::string& option) {
  state_->spellings[other] = option;
  return *this;
}

Command& Command::arguments(const std::string& usage, std::size_t max) {
  state_->usage = usage;
  state_->max_arguments = max;
  return *this;
}

Command& Command::example(const std::string& line) {
  state_->examples.push_back(line);
  return *this;
}

Command& Command::note(const std::string& line) {
  state_->notes.push_back(line);
  return *this;
}

Command& Command::hide() {
  state_->hidden = true;
  return *this;
}

Command& Command::without_config() {
  state_->reads_config = false;
  return *this;
}

std::vector<std::string> Command::given() const {
  std::vector<std::string> names;
  for (const Setting& setting : state_->settings) {
    if (setting.source == OptionSource::CommandLine) names.push_back("--" + setting.option.key());
  }
  return names;
}

void Command::run(std::function<int(const std::vector<std::string>&)> body) {
  state_->body = std::move(body);
}

CommandLine::CommandLine(std::string description, std::string version)
    : description_(std::move(description)), version_(std::move(version)) {}

Command& CommandLine::add(const std::string& name, const std::string& description) {
  return *commands_.emplace_back(std::make_unique<Command>(name, description));
}

CommandTree CommandLine::tree() const {
  CommandTree tree{.description = description_,
                   .version = version_,
                   .commands = {},
                   .examples = examples_,
                   .notes = notes_,
                   .environment = environment_,
                   .files = files_};
  for (const auto& command : commands_) {
    if (command->state_->hidden) continue;
    tree.commands.push_back(command->state_->info(locator_ != nullptr));
  }
  return tree;
}

Command::State& CommandLine::find(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& command : commands_) {
    if (command->state_->name == name) return *command->state_;
    known.push_back(command->state_->name);
  }
  const ForeignWord* foreign = find_foreign(foreign_commands(), name);
  if (foreign != nullptr && std::find(known.begin(), known.end(), foreign->ours) != known.end())
    return find(std::string(foreign->ours));
  const std::string advice =
      foreign != nullptr ? std::string(foreign->advice) : did_you_mean(name, known);
  throw UsageError(
      fmt::format("unknown {} {}{}", name.starts_with('-') ? "option" : "command", name, advice));
}

int CommandLine::run(const std::vector<std::string>& arguments) {
  const std::string word = arguments.empty() ? "" : arguments[0];
  if (word.empty()) throw UsageError("no command given");
  if (word == "-h" || word == "--help" || word == "help") {
    if (arguments.size() > 1 && word == "help") return run({arguments[1], "--help"});
    write_stdout(help_text(tree()));
    return kSuccess;
  }
  if (word == "--version") {
    write_stdout(version_text_.empty() ? version_ + "\n" : version_text_);
    return kSuccess;
  }
  return run_command(find(word), {arguments.begin() + 1, arguments.end()});
}

std::vector<ConfigPlace> CommandLine::config_places(const ConfigChoice& choice) const {
  return locator_ ? locator_(choice) : std::vector<ConfigPlace>();
}

Config CommandLine::read_config(const ConfigChoice& choice) const {
  Config config(config_places(choice));
  config.check(tree());
  return config;
}

std::vector<Setting> CommandLine::settings(const std::string& command,
                                           const std::vector<std::string>& arguments,
                                           const ConfigChoice& choice) {
  Command::State& state = find(command);
  state.parse(arguments);
  state.resolve(state.reads_config ? read_config(choice) : Config());
  return state.settings;
}

int CommandLine::run_command(Command::State& command, const std::vector<std::string>& arguments) {
  bool want_help = false;
  ConfigChoice choice;
  if (locator_ && command.reads_config) {
    command.app.add_option("--config", choice.file)->take_last();
    command.app.add_flag("--no-config", choice.none);
  }
  command.app.add_flag("-h,--help", want_help);
  const std::vector<std::string> plain = command.parse(arguments);
  if (want_help) {
    write_stdout(help_text(command.info(locator_ != nullptr)));
    return kSuccess;
  }
  command.resolve(command.reads_config ? read_config(choice) : Config());
  if (plain.size() > command.max_arguments) {
    throw UsageError(fmt::format("unexpected argument \"{}\"", plain[command.max_arguments]),
                     command.name);
  }
  try {
    return command.body(plain);
  } catch (const UsageError& error) {
    throw UsageError(error.what() + command.blame(error.what()),
                     error.command().empty() ? command.name : error.command());
  }
}

}  // namespace moeflux::cli
