// Which model a command line names.
//
// With -m, that one, by path or by name in --models. Else the first argument, if it is a directory,
// a .safetensors file or a name in --models. Else the default of the environment or a configuration
// file, else the bundled one. What looks like a model and is none is an error: it must not become
// a prompt for another one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options/model_options.h"

namespace moeflux::cli {

struct ModelArgument {
  std::string model;
  std::vector<std::string> rest;  // the arguments after it
};

// For commands that take text after the model. Throws Error(NotFound) when the first argument is
// neither a model nor plainly text.
ModelArgument take_model(const ModelOptions& options, const std::vector<std::string>& arguments);

void add_model_argument_notes(Command& command);  // that rule, for the help of such a command

// For commands whose only argument is the model: it must exist, and nothing may follow.
std::string only_model(const ModelOptions& options, const std::vector<std::string>& arguments);

// The path of the model that an argument names, if it does.
std::optional<std::string> find_named_model(const ModelOptions& options,
                                            const std::string& argument);

// With no model on the command line but in -m.
std::string default_model(const ModelOptions& options);

// Throws Error(NotFound) that says what was looked for.
[[noreturn]] void refuse_model(const ModelOptions& options, const std::string& argument);

// Whether an argument that is no model may be meant as text.
bool is_plainly_text(const std::string& argument, bool more_follows);

}  // namespace moeflux::cli
