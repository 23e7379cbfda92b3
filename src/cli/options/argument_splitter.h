// Brings the arguments of a command into a form that needs no interpretation: each option by
// itself, its value in the argument after it, and apart from them what is no option.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace moeflux::cli {

struct OptionSyntax {
  std::string command;                           // for messages
  std::map<std::string, std::string> spellings;  // more of them: "-sys" -> "--system"
  // Whether a value follows "-n" or "--predict". Throws UsageError for what is no option.
  std::function<bool(const std::string&)> takes_value;
};

struct SplitArguments {
  // "--predict", "5", "-q"; a flag that is given a value is one argument: "--quiet=false".
  std::vector<std::string> options;
  std::vector<std::string> plain;
};

// Throws UsageError.
SplitArguments split_arguments(const std::vector<std::string>& arguments,
                               const OptionSyntax& syntax);

}  // namespace moeflux::cli
