#include "cli/options/argument_splitter.h"

#include <cstddef>

#include <fmt/format.h>

#include "cli/command_line.h"

namespace moeflux::cli {
namespace {

class Splitter {
 public:
  Splitter(const OptionSyntax& syntax, const std::vector<std::string>& arguments)
      : syntax_(syntax), arguments_(arguments) {
    while (next_ < arguments_.size()) {
      const auto other = syntax.spellings.find(arguments_[next_]);
      add(other == syntax.spellings.end() ? arguments_[next_++] : (++next_, other->second));
    }
  }

  SplitArguments out;

 private:
  void add(const std::string& argument) {
    if (argument == "--") {
      out.plain.insert(out.plain.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(next_),
                       arguments_.end());
      next_ = arguments_.size();
    } else if (argument.size() < 2 || argument[0] != '-') {  // a lone "-" is standard input
      out.plain.push_back(argument);
    } else if (argument[1] == '-') {
      add_long(argument);
    } else {
      add_short(argument);
    }
  }

  void add_long(const std::string& argument) {  // --quiet, --number 5, --number=5
    const std::size_t equals = argument.find('=');
    out.options.push_back(argument.substr(0, equals));
    if (syntax_.takes_value(out.options.back())) {
      add_value(equals == std::string::npos ? nullptr : &argument[equals + 1]);
    } else if (equals != std::string::npos) {
      // Only this way can a flag that a configuration file sets be taken back.
      const std::string value = argument.substr(equals + 1);
      if (value != "true" && value != "false")
        throw UsageError(fmt::format("{} takes no value", out.options.back()), syntax_.command);
      out.options.back() = argument;
    }
  }

  void add_short(const std::string& argument) {  // -q, -qv, -n5, -n 5
    for (std::size_t at = 1; at < argument.size(); ++at) {
      out.options.push_back({'-', argument[at]});
      if (!syntax_.takes_value(out.options.back())) continue;
      add_value(at + 1 == argument.size() ? nullptr : &argument[at + 1]);
      return;
    }
  }

  void add_value(const char* given) {  // null: it is the next argument
    if (given == nullptr && next_ == arguments_.size()) {
      throw UsageError(fmt::format("{} needs a value", out.options.back()), syntax_.command);
    }
    if (given != nullptr) {
      out.options.emplace_back(given);
    } else {
      out.options.push_back(arguments_[next_++]);
    }
  }

  const OptionSyntax& syntax_;
  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;  // of arguments_
};

}  // namespace

SplitArguments split_arguments(const std::vector<std::string>& arguments,
                               const OptionSyntax& syntax) {
  return Splitter(syntax, arguments).out;
}

}  // namespace moeflux::cli
