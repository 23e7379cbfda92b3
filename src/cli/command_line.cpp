#include "cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/suggestion.h"
#include "cli/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kHelpColumn = 30;

// "-n, --predict N" in columns, so that the long names stand below each other.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kHelpColumn); }
  std::string make_option_name(const CLI::Option* option, bool /*is_positional*/) const override {
    const std::string longs = join(option->get_lnames(), "--");
    if (option->get_snames().empty()) return "    " + longs;
    const std::string shorts = join(option->get_snames(), "-");
    return longs.empty() ? shorts : shorts + ", " + longs;
  }
  std::string make_group(std::string title, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = title + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, is_positional);
    return text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
  }

 private:
  static std::string join(const std::vector<std::string>& names, const std::string& prefix) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + prefix + name;
    return all;
  }
};

// Converts the text of an option's value, or says what was expected instead.
const char* convert(const std::string& text, std::string& out) {
  out = text;
  return nullptr;
}
const char* convert(const std::string& text, std::int64_t& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end ? nullptr : "a whole number";
}
const char* convert(const std::string& text, double& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(out) ? nullptr : "a number";
}
template <class T>
const char* convert(const std::string& text, std::optional<T>& out) {
  return convert(text, out.emplace());
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string found = closest(word, candidates);
  return found.empty() ? "" : fmt::format("; did you mean {}?", found);
}

std::string example_lines(const std::vector<std::string>& examples) {
  if (examples.empty()) return "";
  std::string text = "\nExamples:\n";
  for (const std::string& line : examples) text += fmt::format("  moeflux {}\n", line);
  return text;
}

std::string note_lines(const std::vector<std::string>& notes) {
  std::string text = notes.empty() ? "" : "\n";
  for (const std::string& line : notes) text += line + "\n";
  return text;
}

}  // namespace

struct Command::State {
  class Splitter;

  State(std::string command_name, const std::string& description)
      : name(std::move(command_name)), app(description, name) {
    app.set_help_flag();
    app.formatter(std::make_shared<HelpFormatter>());
  }

  void finish(CLI::Option* option) const { option->group(group)->take_last(); }

  bool takes_value(const std::string& option) const;  // throws UsageError for an unknown one
  std::string help() const;
  CommandInfo info() const;

  std::string name;
  bool hidden = false;
  CLI::App app;
  std::string group = "Options";
  std::map<std::string, std::string> spellings;
  std::string usage;
  std::size_t max_arguments = 0;
  std::vector<std::string> examples, notes;
  std::function<int(const std::vector<std::string>&)> body;
};

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

// Brings arguments into a form that needs no interpretation: each option by itself, its value in
// the argument after it, and apart from them what is no option.
class Command::State::Splitter {
 public:
  Splitter(const State& command, const std::vector<std::string>& arguments)
      : command_(command), arguments_(arguments) {
    while (next_ < arguments_.size()) {
      const auto other = command.spellings.find(arguments_[next_]);
      add(other == command.spellings.end() ? arguments_[next_++] : (++next_, other->second));
    }
  }

  std::vector<std::string> options, plain;

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
    if (command_.takes_value(options.back())) {
      add_value(equals == std::string::npos ? nullptr : &argument[equals + 1]);
    } else if (equals != std::string::npos) {
      throw UsageError(fmt::format("{} takes no value", options.back()), command_.name);
    }
  }

  void add_short(const std::string& argument) {  // -q, -qv, -n5, -n 5
    for (std::size_t at = 1; at < argument.size(); ++at) {
      options.push_back({'-', argument[at]});
      if (!command_.takes_value(options.back())) continue;
      add_value(at + 1 == argument.size() ? nullptr : &argument[at + 1]);
      return;
    }
  }

  void add_value(const char* given) {  // null: it is the next argument
    if (given == nullptr && next_ == arguments_.size()) {
      throw UsageError(fmt::format("{} needs a value", options.back()), command_.name);
    }
    if (given != nullptr) {
      options.emplace_back(given);
    } else {
      options.push_back(arguments_[next_++]);
    }
  }

  const State& command_;
  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;  // of arguments_
};

std::string Command::State::help() const {
  const HelpFormatter formatter;
  std::string text = fmt::format("{}\n\nUsage: moeflux {} [OPTIONS]{}{}\n\n", app.get_description(),
                                 name, usage.empty() ? "" : " ", usage);
  text += formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  return text + example_lines(examples) + note_lines(notes);
}

CommandInfo Command::State::info() const {
  CommandInfo info{.name = name,
                   .description = app.get_description(),
                   .usage = usage,
                   .options = {},
                   .examples = examples,
                   .notes = notes};
  for (const CLI::Option* option : app.get_options()) {
    OptionInfo& entry = info.options.emplace_back();
    for (const std::string& each : option->get_snames()) entry.names.push_back("-" + each);
    for (const std::string& each : option->get_lnames()) entry.names.push_back("--" + each);
    entry.value = option->get_option_text();
    entry.help = option->get_description();
    entry.group = option->get_group();
  }
  info.options.push_back({{"-h", "--help"}, "", "show this help", "General"});
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
  state_->finish(state_->app.add_flag_callback(
      names, [&target] { target = true; }, help));
  return *this;
}

template <class T>
Command& Command::option(const std::string& names, T& target, const std::string& value,
                         const std::string& help) {
  const std::string shown = names.substr(names.find("--"));
  const auto assign = [this, &target, shown](const CLI::results_t& results) {
    if (const char* expected = convert(results.back(), target)) {
      throw UsageError(fmt::format("{}: \"{}\" is not {}", shown, results.back(), expected),
                       state_->name);
    }
    return true;
  };
  CLI::Option* option = state_->app.add_option(names, assign, help);
  state_->finish(option->option_text(value));
  return *this;
}

template <>
Command& Command::option(const std::string& names, std::vector<std::string>& target,
                         const std::string& value, const std::string& help) {
  CLI::Option* option = state_->app.add_option(names, target, help);
  option->option_text(value)->group(state_->group)->take_all()->allow_extra_args(false);
  return *this;
}

template Command& Command::option(const std::string&, std::string&, const std::string&,
                                  const std::string&);
template Command& Command::option(const std::string&, std::int64_t&, const std::string&,
                                  const std::string&);
template Command& Command::option(const std::string&, double&, const std::string&,
                                  const std::string&);
template Command& Command::option(const std::string&, std::optional<std::string>&,
                                  const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::optional<std::int64_t>&,
                                  const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::optional<double>&, const std::string&,
                                  const std::string&);

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

void Command::run(std::function<int(const std::vector<std::string>&)> body) {
  state_->body = std::move(body);
}

CommandLine::CommandLine(std::string description, std::string version)
    : description_(std::move(description)), version_(std::move(version)) {}

Command& CommandLine::add(const std::string& name, const std::string& description) {
  return *commands_.emplace_back(std::make_unique<Command>(name, description));
}

std::string CommandLine::help() const {
  std::string text = fmt::format(
      "{}\n\nUsage: moeflux COMMAND [OPTIONS] [ARGUMENTS...]\n\nCommands:\n", description_);
  for (const auto& command : commands_) {
    if (command->state_->hidden) continue;
    text +=
        fmt::format("  {:<12}{}\n", command->state_->name, command->state_->app.get_description());
  }
  text +=
      "\nOptions:\n  -h, --help  show this, or the help of a command\n  --version   show the "
      "version\n";
  return text + example_lines(examples_) + note_lines(notes_);
}

CommandTree CommandLine::tree() const {
  CommandTree tree{.description = description_,
                   .version = version_,
                   .commands = {},
                   .examples = examples_,
                   .notes = notes_};
  for (const auto& command : commands_) {
    if (!command->state_->hidden) tree.commands.push_back(command->state_->info());
  }
  return tree;
}

const CommandInfo* CommandTree::find(const std::string& name) const {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const CommandInfo& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

int CommandLine::run(const std::vector<std::string>& arguments) {
  const std::string word = arguments.empty() ? "" : arguments[0];
  if (word.empty()) throw UsageError("no command given");
  if (word == "-h" || word == "--help" || word == "help") {
    if (arguments.size() > 1 && word == "help") return run({arguments[1], "--help"});
    write_stdout(help());
    return kSuccess;
  }
  if (word == "--version") {
    write_stdout(version_ + "\n");
    return kSuccess;
  }
  std::vector<std::string> known;
  for (const auto& command : commands_) {
    if (command->state_->name == word) {
      return run_command(*command->state_, {arguments.begin() + 1, arguments.end()});
    }
    known.push_back(command->state_->name);
  }
  throw UsageError(fmt::format("unknown {} {}{}", word[0] == '-' ? "option" : "command", word,
                               did_you_mean(word, known)));
}

int CommandLine::run_command(Command::State& command, const std::vector<std::string>& arguments) {
  bool want_help = false;
  command.app
      .add_flag_callback(
          "-h,--help", [&] { want_help = true; }, "show this help")
      ->group("General");
  Command::State::Splitter split(command, arguments);
  try {
    std::reverse(split.options.begin(), split.options.end());  // CLI11 takes them from the back
    command.app.parse(std::move(split.options));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), command.name);
  }
  if (want_help) {
    write_stdout(command.help());
    return kSuccess;
  }
  if (split.plain.size() > command.max_arguments) {
    throw UsageError(fmt::format("unexpected argument \"{}\"", split.plain[command.max_arguments]),
                     command.name);
  }
  return command.body(split.plain);
}

}  // namespace moeflux::cli
