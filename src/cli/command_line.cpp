#include "cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

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

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
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

std::string closest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    // A word that was cut short is as good as one typing error.
    const bool prefix = word.size() >= 3 && candidate.compare(0, word.size(), word) == 0;
    const std::size_t distance = prefix ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

struct Command::State {
  State(std::string command_name, const std::string& description)
      : name(std::move(command_name)), app(description, name) {
    app.set_help_flag();
    app.formatter(std::make_shared<HelpFormatter>());
  }

  void finish(CLI::Option* option) const { option->group(group)->take_last(); }

  // Arguments in a form that needs no interpretation: each option by itself, its value after it.
  struct Split {
    std::vector<std::string> options;
    std::vector<std::string> plain;  // what is no option, and all after "--"
  };
  Split split(const std::vector<std::string>& arguments) const;
  const CLI::Option* find(const std::string& name) const;  // throws UsageError
  std::string help() const;

  std::string name;
  CLI::App app;
  std::string group = "Options";
  std::map<std::string, std::string> spellings;
  std::string usage;
  std::size_t max_arguments = 0;
  std::vector<std::string> examples, notes;
  std::function<int(const std::vector<std::string>&)> body;
};

const CLI::Option* Command::State::find(const std::string& option_name) const {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_name(option_name)) return option;
  }
  if (option_name.compare(0, 2, "--") != 0) {
    throw UsageError(
        fmt::format("unknown option {}; write -- before text that starts with a dash", option_name), name);
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& each : option->get_lnames()) known.push_back("--" + each);
  }
  throw UsageError(fmt::format("unknown option {}{}", option_name, did_you_mean(option_name, known)), name);
}

Command::State::Split Command::State::split(const std::vector<std::string>& arguments) const {
  Split result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto other = spellings.find(arguments[i]);
    const std::string& argument = other == spellings.end() ? arguments[i] : other->second;
    const auto add_with_next = [&](const std::string& option) {
      if (i + 1 == arguments.size()) throw UsageError(fmt::format("{} needs a value", option), name);
      result.options.insert(result.options.end(), {option, arguments[++i]});
    };

    if (argument == "--") {
      result.plain.insert(result.plain.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                          arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {  // a lone "-" stands for standard input
      result.plain.push_back(argument);
    } else if (argument[1] == '-') {
      const std::size_t equals = argument.find('=');
      const std::string option = argument.substr(0, equals);
      const bool is_flag = find(option)->get_items_expected_max() == 0;
      if (equals == std::string::npos) {
        if (is_flag) {
          result.options.push_back(option);
        } else {
          add_with_next(option);
        }
      } else {
        if (is_flag) throw UsageError(fmt::format("{} takes no value", option), name);
        result.options.insert(result.options.end(), {option, argument.substr(equals + 1)});
      }
    } else {
      for (std::size_t at = 1; at < argument.size(); ++at) {  // -q, -qv, -n5, -n 5
        const std::string option{'-', argument[at]};
        if (find(option)->get_items_expected_max() == 0) {
          result.options.push_back(option);
        } else if (at + 1 == argument.size()) {
          add_with_next(option);
        } else {
          result.options.insert(result.options.end(), {option, argument.substr(at + 1)});
          break;
        }
      }
    }
  }
  return result;
}

std::string Command::State::help() const {
  const HelpFormatter formatter;
  std::string text = fmt::format("{}\n\nUsage: moeflux {} [OPTIONS]{}{}\n", app.get_description(), name,
                                 usage.empty() ? "" : " ", usage);
  text += formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  return text + example_lines(examples) + note_lines(notes);
}

Command::Command(std::string name, const std::string& description)
    : state_(std::make_unique<State>(std::move(name), description)) {}
Command::~Command() = default;

Command& Command::group(std::string title) {
  state_->group = std::move(title);
  return *this;
}

Command& Command::flag(const std::string& names, bool& target, const std::string& help) {
  state_->finish(state_->app.add_flag_callback(names, [&target] { target = true; }, help));
  return *this;
}

template <class T>
Command& Command::option(const std::string& names, T& target, const std::string& value, const std::string& help) {
  const std::string shown = names.substr(names.find("--"));
  const auto assign = [this, &target, shown](const CLI::results_t& results) {
    if (const char* expected = convert(results.back(), target)) {
      throw UsageError(fmt::format("{}: \"{}\" is not {}", shown, results.back(), expected), state_->name);
    }
    return true;
  };
  CLI::Option* option = state_->app.add_option(names, assign, help);
  state_->finish(option->option_text(value));
  return *this;
}

template <>
Command& Command::option(const std::string& names, std::vector<std::string>& target, const std::string& value,
                         const std::string& help) {
  CLI::Option* option = state_->app.add_option(names, target, help);
  option->option_text(value)->group(state_->group)->take_all()->allow_extra_args(false);
  return *this;
}

template Command& Command::option(const std::string&, std::string&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::int64_t&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, double&, const std::string&, const std::string&);
template Command& Command::option(const std::string&, std::optional<std::string>&, const std::string&,
                                  const std::string&);
template Command& Command::option(const std::string&, std::optional<std::int64_t>&, const std::string&,
                                  const std::string&);
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

void Command::run(std::function<int(const std::vector<std::string>&)> body) { state_->body = std::move(body); }

CommandLine::CommandLine(std::string description, std::string version)
    : description_(std::move(description)), version_(std::move(version)) {}

Command& CommandLine::add(const std::string& name, const std::string& description) {
  return *commands_.emplace_back(std::make_unique<Command>(name, description));
}

std::string CommandLine::help() const {
  std::string text = fmt::format("{}\n\nUsage: moeflux COMMAND [OPTIONS] [ARGUMENTS...]\n\nCommands:\n", description_);
  for (const auto& command : commands_) {
    text += fmt::format("  {:<12}{}\n", command->state_->name, command->state_->app.get_description());
  }
  text += "\nOptions:\n  -h, --help    show this, or the help of a command\n      --version show the version\n";
  return text + example_lines(examples_) + note_lines(notes_);
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
  command.app.add_flag_callback("-h,--help", [&] { want_help = true; }, "show this help")->group("General");
  auto [options, plain] = command.split(arguments);
  try {
    std::reverse(options.begin(), options.end());  // CLI11 takes arguments from the back
    command.app.parse(std::move(options));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), command.name);
  }
  if (want_help) {
    write_stdout(command.help());
    return kSuccess;
  }
  if (plain.size() > command.max_arguments) {
    throw UsageError(fmt::format("unexpected argument \"{}\"", plain[command.max_arguments]), command.name);
  }
  return command.body(plain);
}

}  // namespace moeflux::cli
