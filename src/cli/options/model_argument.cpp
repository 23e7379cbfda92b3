#include "cli/options/model_argument.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "engine/model_catalog.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool has_blank(const std::string& text) {
  return text.find_first_of(" \t\r\n") != std::string::npos;
}

// Names of models may have a slash inside.
bool begins_like_path(std::string_view text) {
  for (const std::string_view start : {"/", "./", "../", "~/"})
    if (text.starts_with(start)) return true;
  return text == "." || text == ".." || text == "~";
}

// GGUF is not read, but whoever opens it says so best.
bool is_model(const std::string& argument) {
  if (directory_exists(argument)) return true;
  const std::string kind = fs::path(argument).extension().string();
  return (kind == ".safetensors" || kind == ".gguf") && file_exists(argument);
}

// Beside the program: in a build directory of the source tree, or where it is installed.
std::string bundled_model() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path bin = program.parent_path();
    for (const char* place : {"../../models/demo", "../share/moeflux/models/demo"}) {
      const fs::path model = (bin / place).lexically_normal();
      if (fs::is_directory(model, error)) return model.string();
    }
  }
  fail(Errc::NotFound,
       "no model given, and the bundled one is not beside the program; name one: -m MODEL");
}

// What nothing but a model can be meant by.
std::string require_model(const ModelOptions& options, const std::string& argument) {
  if (const auto model = find_named_model(options, argument)) return *model;
  refuse_model(options, argument);
}

}  // namespace

std::optional<std::string> find_named_model(const ModelOptions& options,
                                            const std::string& argument) {
  if (is_model(argument)) return argument;
  if (!options.models || has_blank(argument) || begins_like_path(argument)) return std::nullopt;
  const std::vector<CatalogEntry> models = list_models(*options.models);
  try {
    return find_model(models, argument).path;
  } catch (const Error& error) {
    if (error.code() != Errc::NotFound) throw;
    return std::nullopt;
  }
}

void refuse_model(const ModelOptions& options, const std::string& argument) {
  if (file_exists(argument)) {
    fail(Errc::NotFound,
         "{}: no such model: it is a file, and a model is a directory or a .safetensors file",
         argument);
  }
  constexpr const char* kLookedFor =
      "{}: no such model: there is no directory and no .safetensors file of that name";
  if (begins_like_path(argument)) fail(Errc::NotFound, kLookedFor, argument);
  if (!options.models) {
    fail(Errc::NotFound, "{}, and no --models DIR to look for it by name",
         fmt::format(kLookedFor, argument));
  }
  const std::vector<CatalogEntry> models = list_models(*options.models);
  find_model(models, argument);  // says which there are
  fail(Errc::NotFound, kLookedFor, argument);
}

bool is_plainly_text(const std::string& argument, bool more_follows) {
  if (argument.empty() || has_blank(argument)) return true;
  if (begins_like_path(argument)) return false;
  const char first = argument.front(), last = argument.back();
  const bool begins_like_name = is_letter(first) || is_digit(first);
  const bool ends_like_name = is_letter(last) || is_digit(last) || last == '/';
  const bool is_number = std::none_of(argument.begin(), argument.end(), is_letter);
  if (!begins_like_name || !ends_like_name || is_number) return true;
  return !more_follows && std::all_of(argument.begin(), argument.end(), is_letter);
}

std::string default_model(const ModelOptions& options) {
  const std::optional<std::string>& model = options.model ? options.model : options.default_model;
  return model ? require_model(options, *model) : bundled_model();
}

ModelArgument take_model(const ModelOptions& options, const std::vector<std::string>& arguments) {
  if (options.model || arguments.empty()) return {default_model(options), arguments};
  const std::string& first = arguments[0];
  if (const auto model = find_named_model(options, first))
    return {*model, {arguments.begin() + 1, arguments.end()}};
  if (is_plainly_text(first, arguments.size() > 1)) return {default_model(options), arguments};
  try {
    refuse_model(options, first);
  } catch (const Error& error) {
    fail(error.code(), "{}; if it is text, name the model before it: -m MODEL", error.what());
  }
}

void add_model_argument_notes(Command& command) {
  command
      .note(
          "The first argument is the model: a directory, a .safetensors file or a name in "
          "--models.")
      .note(
          "It is text for the default model if it has a blank in it, ends like a sentence, is a "
          "number, or")
      .note("is one plain word and all there is. After -m MODEL, every argument is text.");
}

std::string only_model(const ModelOptions& options, const std::vector<std::string>& arguments) {
  if (arguments.empty()) return default_model(options);
  if (options.model)
    throw UsageError(fmt::format("model given twice: {} and -m {}", arguments[0], *options.model));
  return require_model(options, arguments[0]);
}

}  // namespace moeflux::cli
