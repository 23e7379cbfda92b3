// The command line: commands declare their options here, CLI11 parses them, and everything a user
// sees of it (help, messages, suggestions) comes from one place. The only user of CLI11 is
// command_line.cpp.
//
// An option gets its value from the command line, else from its environment variable, else from a
// configuration file, else it keeps the built-in one; Option::resolve() decides that. A UsageError
// about the value of an option begins with its name ("--ram: ..."): run() adds where that value was
// set.
//
// Arguments that are no options reach a command byte for byte: CLI11 would take "[a, b]" apart and
// read "++" as markup, so they never pass through it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/command_tree.h"
#include "cli/options/config.h"

namespace moeflux::cli {

// Exit codes of the program.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

// The command line itself is wrong. `command` is the one whose --help tells more, or "".
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(const std::string& message, std::string command = "")
      : std::runtime_error(message), command_(std::move(command)) {}
  const std::string& command() const { return command_; }

 private:
  std::string command_;
};

// One command under construction. Targets of options must live as long as the command line.
class Command {
 public:
  Command(std::string name, const std::string& description);
  ~Command();

  // Options declared from here on are listed under `title`.
  Command& group(std::string title);
  // `names` is "-n,--predict" or "--predict".
  Command& flag(const std::string& names, bool& target, const std::string& help);
  // T: std::string, std::int64_t, double, std::optional of one of these (empty unless given), or
  // std::vector<std::string> for an option that may be repeated. `value` names the value in the
  // help: "FILE".
  template <class T>
  Command& option(const std::string& names, T& target, const std::string& value,
                  const std::string& help) {
    return add_option(names, target_of(target), value, help);
  }
  // These five are about the option declared last.
  Command& choices(std::vector<std::string> values);  // any other is a UsageError
  // The variable that sets it; with `meaning`, that it is set at all means that value.
  Command& env(const std::string& variable, const std::string& meaning = "");
  // What environment and files say goes there: for an option that an argument may stand for.
  Command& fallback(std::optional<std::string>& target);
  Command& secret();             // never shown
  Command& command_line_only();  // not for environment and files
  // One more spelling for an option, such as llama.cpp's "-sys", which CLI11 cannot have.
  Command& spelling(const std::string& other, const std::string& option);

  // How the arguments that are no options look in the usage line, and how many there may be.
  Command& arguments(const std::string& usage, std::size_t max);
  Command& example(const std::string& line);  // without the leading "moeflux "
  Command& note(const std::string& line);     // at the end of the help
  Command& hide();                            // from the list of commands
  Command& without_config();                  // works whatever the configuration files say

  // For the body: the options ("--ram") that the command line has, not environment and files.
  std::vector<std::string> given() const;

  // The body gets the arguments that are no options and returns the exit code.
  void run(std::function<int(const std::vector<std::string>&)> body);
  // The same, for one that works on options of its own.
  template <class Options>
  void run(std::shared_ptr<Options> options,
           std::type_identity_t<int (*)(const Options&, const std::vector<std::string>&)> body) {
    run([options = std::move(options), body](const std::vector<std::string>& arguments) {
      return body(*options, arguments);
    });
  }

 private:
  friend class CommandLine;
  struct State;
  Command& add_option(const std::string& names, OptionTarget target, const std::string& value,
                      const std::string& help);

  std::unique_ptr<State> state_;
};

class CommandLine {
 public:
  CommandLine(std::string description, std::string version);

  Command& add(const std::string& name, const std::string& description);
  // What --version shows instead of the version alone; ends with a newline.
  void version_text(std::string text) { version_text_ = std::move(text); }
  void example(const std::string& line) { examples_.push_back(line); }
  void note(const std::string& line) { notes_.push_back(line); }
  void environment(const NamedText& variable) { environment_.push_back(variable); }
  void file(const NamedText& file) { files_.push_back(file); }

  // From here on commands have --config and --no-config, and read the files `locator` names.
  void use_config(ConfigLocator locator) { locator_ = std::move(locator); }

  // Parses and runs, once. Help and version go to stdout and are a success. Throws UsageError, and
  // what commands throw.
  int run(const std::vector<std::string>& arguments);

  CommandTree tree() const;

  // What the options of a command are with these arguments: parses them, but runs nothing. Throws
  // UsageError.
  std::vector<Setting> settings(const std::string& command,
                                const std::vector<std::string>& arguments,
                                const ConfigChoice& choice);
  std::vector<ConfigPlace> config_places(const ConfigChoice& choice) const;

 private:
  Command::State& find(const std::string& name);
  Config read_config(const ConfigChoice& choice) const;
  int run_command(Command::State& command, const std::vector<std::string>& arguments);

  std::string description_;
  std::string version_, version_text_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::string> examples_, notes_;
  std::vector<NamedText> environment_, files_;
  ConfigLocator locator_;
};

}  // namespace moeflux::cli
