// Which model a command works with, and the machine it may use for it.
//
// The model is the one of -m, by path or by name (cli/options/model_names.h). Else the first
// argument, if it is a directory, a .safetensors or .gguf file, or a name. Else the default of the
// environment or a configuration file, else the bundled one. An argument that looks like a model
// and is none is an error: it must not become a prompt for another model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/options/general_options.h"
#include "engine/decoder.h"

namespace moeflux::cli {

struct ModelOptions {
  std::optional<std::string> model;          // -m on the command line
  std::optional<std::string> default_model;  // -m as the environment or a config file say it
  std::optional<std::string> models;         // --models: where names of models are looked up
  std::optional<std::int64_t> context;
  std::optional<std::int64_t> batch;
  std::optional<std::int64_t> threads;
  std::optional<std::string> ram, vram;
  std::string device = "auto";
  std::string precision = "fine";
  bool exact = false;  // short for precision = "exact"
  std::string kv = "f32";
  std::string reader = "auto";
  std::string cache_policy = std::string(kDefaultPolicy);
  std::string lookahead = "auto", reads_at_once = "auto";
  std::string draft = "off";  // where a command has the option
  bool preload = false, no_profile = false;
  int n_sessions = 1, n_checkpoints = 0;  // not options: what the command needs
  std::uint64_t other_bytes = 0;          // of --ram, for what the command keeps beside the engine
};

void add_model_option(Command& command, ModelOptions& options);   // -m, and:
void add_models_option(Command& command, ModelOptions& options);  // --models
void add_machine_options(Command& command,
                         ModelOptions& options);                      // -c, -t, --ram and streaming
void add_device_options(Command& command, ModelOptions& options);     // --device, --vram
void add_precision_options(Command& command, ModelOptions& options);  // --precision, --kv
void add_streaming_options(Command& command, ModelOptions& options);  // how experts are read
void add_draft_option(Command& command, ModelOptions& options);       // --draft

EngineOptions engine_options(const ModelOptions& options);  // throws UsageError

// Where models are called by name. Throws Error(NotFound) when nobody says.
std::string models_directory(const ModelOptions& options);

// Says so when -c is more than the `has` tokens of a model.
void remark_on_context(const ModelOptions& options, std::int64_t has,
                       const GeneralOptions& general);

// Opens it, showing progress. Ctrl-C while loading throws Error(Cancelled).
std::unique_ptr<Engine> open_engine(const std::string& model, const ModelOptions& options,
                                    const GeneralOptions& general);

KvType parse_kv_type(const ModelOptions& options);       // throws UsageError
Precision parse_precision(const ModelOptions& options);  // throws UsageError
int thread_count(const ModelOptions& options);           // 0: every core; throws UsageError
DraftOptions parse_drafts(const ModelOptions& options);  // throws UsageError

// Keeps what was learned for the next start; a remark when that is not possible.
void save_profile(Engine& engine, const GeneralOptions& general);

// "6G", "512M", "1.5GiB": powers of 1024. Throws UsageError naming `option`.
std::uint64_t parse_size(const std::string& text, const std::string& option);

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
