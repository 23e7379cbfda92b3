#include "cli/options/model_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/options/environment.h"
#include "cli/options/hub_options.h"
#include "cli/options/model_names.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "engine/model_catalog.h"

namespace moeflux::cli {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

constexpr int kMaxDrafts = 16;

std::string device_name(const ModelOptions& options) {
  if (options.device == kAutoBackend) return options.device;
  std::string names;
  for (const BackendInfo& backend : backend_list()) {
    if (backend.name == options.device) return options.device;
    names += fmt::format(", {}", backend.name);
  }
  throw UsageError(fmt::format("--device: \"{}\" is not one of auto{}", options.device, names));
}

std::uint64_t memory_limit(const ModelOptions& options) {
  return options.ram ? parse_size(*options.ram, "--ram") : 0;
}

ReaderKind reader_kind(const std::string& name) {
  if (name == "auto") return ReaderKind::Auto;
  if (name == "uring") return ReaderKind::Uring;
  if (name == "pool") return ReaderKind::Pool;
  throw UsageError(fmt::format("--reader: \"{}\" is not one of auto, uring, pool", name));
}

std::optional<int> number_or_auto(const std::string& text, const char* option, int least) {
  if (text == "auto") return std::nullopt;
  const auto number = to_number<int>(text);
  if (!number || *number < least) {
    throw UsageError(
        fmt::format("{}: \"{}\" is neither auto nor a number from {} on", option, text, least));
  }
  return number;
}

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

bool is_model(const std::string& argument) {
  if (directory_exists(argument)) return true;
  const std::string kind = fs::path(argument).extension().string();
  return (kind == ".safetensors" || kind == ".gguf") && file_exists(argument);
}

// Beside the program: in a build directory of the source tree, or where it is installed.
std::optional<std::string> find_bundled_model() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path bin = program.parent_path();
    for (const char* place : {"../../models/demo", "../share/moeflux/models/demo"}) {
      const fs::path model = (bin / place).lexically_normal();
      if (fs::is_directory(model, error)) return model.string();
    }
  }
  return std::nullopt;
}

std::string bundled_model() {
  if (const auto model = find_bundled_model()) return *model;
  fail(Errc::NotFound,
       "no model given, and the bundled one is not beside the program; name one: -m MODEL");
}

// A tiny model that answers where a larger one was expected must not go unnoticed.
void remark_on_bundled(const std::string& model, const ModelOptions& options,
                       const GeneralOptions& general) {
  if (options.model || options.default_model || model != find_bundled_model()) return;
  general.note(
      "no model was named: the small one that comes with the program answers; moeflux pull "
      "ORG/NAME "
      "fetches another, -m names it");
}

// What nothing but a model can be meant by.
std::string require_model(const ModelOptions& options, const std::string& argument) {
  if (const auto model = find_named_model(options, argument)) return *model;
  refuse_model(options, argument);
}

}  // namespace

std::uint64_t parse_size(const std::string& text, const std::string& option) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  std::string_view unit(result.ptr, static_cast<std::size_t>(end - result.ptr));
  int power = 0;
  if (!unit.empty()) {
    power = static_cast<int>(std::string_view("KMGT").find(static_cast<char>(unit[0] & ~0x20))) + 1;
    if (power > 0) unit.remove_prefix(1);
    for (const std::string_view end_of_unit : {"B", "b", "iB", "ib"}) {
      if (unit == end_of_unit) unit = {};
    }
  }
  const double bytes = value * std::pow(1024.0, power);
  if (result.ec != std::errc() || !unit.empty() || !(bytes >= 1 && bytes < 1e18)) {
    throw UsageError(fmt::format("{}: \"{}\" is not a size such as 6G or 512M", option, text));
  }
  return static_cast<std::uint64_t>(bytes);
}

void add_model_option(Command& command, ModelOptions& options) {
  command.group("Model")
      .option("-m,--model", options.model, "PATH",
              "path, or name like ORG/NAME (default: the bundled model)")
      .env("MOEFLUX_MODEL")
      .fallback(options.default_model);
  add_models_option(command, options);
}

void add_models_option(Command& command, ModelOptions& options) {
  command.group("Model")
      .option("--models", options.models, "DIR", "directory of models that are called by name")
      .env("MOEFLUX_MODELS");
}

void add_machine_options(Command& command, ModelOptions& options) {
  command.group("Model")
      .option("-c,--ctx-size", options.context, "N",
              fmt::format("tokens of context (default: the model's, at most {})", kDefaultContext))
      .option("-t,--threads", options.threads, "N", "threads (default: one per physical core)")
      .env("MOEFLUX_THREADS")
      .option("--ram", options.ram, "SIZE",
              "ceiling for memory, such as 6G (default: what is free)")
      .env("MOEFLUX_RAM");
  add_device_options(command, options);
  add_precision_options(command, options);
  add_streaming_options(command, options);
}

void add_device_options(Command& command, ModelOptions& options) {
  command.group("Model")
      .option("--device", options.device, "NAME", "cpu, cuda, or auto: a GPU where there is one")
      .env("MOEFLUX_DEVICE")
      .option("--vram", options.vram, "SIZE",
              "ceiling for memory of the GPU (default: what is free)")
      .env("MOEFLUX_VRAM");
}

void add_precision_options(Command& command, ModelOptions& options) {
  command.group("Model")
      .option("--precision", options.precision, "NAME",
              fmt::format("rounding of activations: exact, fine, fast (default: {})",
                          options.precision))
      .flag("--exact", options.exact, "short for --precision exact")
      .command_line_only()  // or it would go before a --precision that is given there
      .option("-b,--batch", options.batch, "N",
              "tokens of a prompt per pass (default: as many as memory suggests)")
      .option("--kv", options.kv, "TYPE",
              fmt::format("keys and values of the context as f32, f16, bf16 or q8 (default: {})",
                          options.kv));
}

void add_streaming_options(Command& command, ModelOptions& options) {
  std::vector<std::string> policies;
  for (const PolicyInfo& policy : policy_list()) policies.emplace_back(policy.name);
  command.group("Streaming")
      .option("--reader", options.reader, "KIND",
              "auto, uring or pool: how experts are read (default: auto)")
      .option(
          "--cache-policy", options.cache_policy, "NAME",
          fmt::format("which experts to evict: {} (default: {})", policy_names(), kDefaultPolicy))
      .choices(std::move(policies))
      .option("--lookahead", options.lookahead, "N",
              "experts per layer to prefetch; auto: as it pays (default)")
      .option("--reads-at-once", options.reads_at_once, "N",
              "experts to read at once; auto: what keeps the drive busy (default)")
      .flag("--preload", options.preload, "fill the expert cache before the first token")
      .flag("--no-profile", options.no_profile, "neither use nor keep a profile of expert usage");
}

int thread_count(const ModelOptions& options) {
  const std::int64_t n = options.threads.value_or(0);
  if (n < 0 || n > kMaxThreads)
    throw UsageError(fmt::format("--threads must be from 0 (every core) to {}", kMaxThreads));
  return static_cast<int>(n);
}

Precision parse_precision(const ModelOptions& options) {
  if (options.exact) return Precision::Exact;
  for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
    if (options.precision == precision_name(precision)) return precision;
  }
  throw UsageError(
      fmt::format("--precision: \"{}\" is not one of exact, fine, fast", options.precision));
}

KvType parse_kv_type(const ModelOptions& options) {
  for (const KvType type : kAllKvTypes) {
    if (options.kv == kv_type_name(type)) return type;
  }
  throw UsageError(fmt::format("--kv: \"{}\" is not one of f32, f16, bf16, q8", options.kv));
}

void add_draft_option(Command& command, ModelOptions& options) {
  command.group("Answer").option(
      "--draft", options.draft, "KIND",
      fmt::format("draft tokens ahead: off, mtp, ngram or auto; mtp:2: always 2 (default: {})",
                  options.draft));
}

DraftOptions parse_drafts(const ModelOptions& options) {
  const std::size_t colon = options.draft.find(':');
  const std::string kind = options.draft.substr(0, colon);
  DraftOptions drafts{.mtp = kind == "auto" || kind == "mtp",
                      .ngram = kind == "auto" || kind == "ngram"};
  if (!drafts.any() && (kind != "off" || colon != std::string::npos)) {
    throw UsageError(
        fmt::format("--draft: \"{}\" is not one of auto, mtp, ngram, off, or one of "
                    "the first three with a number as in mtp:2",
                    options.draft));
  }
  if (colon == std::string::npos) return drafts;
  const std::string_view text = std::string_view(options.draft).substr(colon + 1);
  drafts.depth = to_number<int>(text);
  if (!drafts.depth || *drafts.depth < 1 || *drafts.depth > kMaxDrafts)
    throw UsageError(fmt::format("--draft: \"{}\" is not a number from 1 to {}", text, kMaxDrafts));
  return drafts;
}

void remark_on_context(const ModelOptions& options, std::int64_t has,
                       const GeneralOptions& general) {
  if (!options.context || *options.context <= has) return;
  general.note(fmt::format("the model's context is {} tokens; -c {} is more than it has", has,
                           *options.context));
}

EngineOptions engine_options(const ModelOptions& options) {
  EngineOptions engine;
  engine.n_threads = thread_count(options);
  engine.memory_bytes = memory_limit(options);
  if (options.vram) engine.device_bytes = parse_size(*options.vram, "--vram");
  engine.device = device_name(options);
  if (options.context && *options.context < 1) throw UsageError("--ctx-size must be at least 1");
  if (options.batch && *options.batch < 1) throw UsageError("--batch must be at least 1");
  engine.max_batch = options.batch.value_or(0);
  engine.precision = parse_precision(options);
  engine.kv_type = parse_kv_type(options);
  engine.context_length = options.context.value_or(0);
  engine.other_bytes = options.other_bytes;
  engine.n_sessions = options.n_sessions;
  engine.n_checkpoints = options.n_checkpoints;
  if (const DraftOptions drafts = parse_drafts(options); drafts.any())
    engine.max_drafts = drafts.depth.value_or(kAutoDrafts);
  engine.reader.kind = reader_kind(options.reader);
  engine.cache_policy = options.cache_policy;
  engine.preload = options.preload;
  if (!options.no_profile && environment().cache_home) {
    engine.profile_directory = *environment().cache_home;
  }
  engine.lookahead = number_or_auto(options.lookahead, "--lookahead", 0);
  engine.reads_at_once = number_or_auto(options.reads_at_once, "--reads-at-once", 1);
  if (environment().isa) engine.isa = *environment().isa;
  return engine;
}

std::string models_directory(const ModelOptions& options) {
  if (options.models) return *options.models;
  fail(Errc::NotFound,
       "no directory of models is known; give --models DIR, set MOEFLUX_MODELS, or write models = "
       "\"DIR\" into the configuration file; moeflux pull ORG/NAME fetches a model from the hub");
}

std::unique_ptr<Engine> open_engine(const std::string& model, const ModelOptions& options,
                                    const GeneralOptions& general) {
  EngineOptions with_progress = engine_options(options);
  remark_on_bundled(model, options, general);
  ProgressBar bar(fmt::format("loading {}", model), general.show_progress());
  with_progress.progress = [&](std::uint64_t done, std::uint64_t total) {
    throw_if_interrupted();
    bar.update(done, total, fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
  };
  auto engine = std::make_unique<Engine>(model, with_progress);
  remark_on_context(options, engine->config().context_length, general);
  if (!engine->profile_warning().empty()) general.note(engine->profile_warning());
  return engine;
}

void save_profile(Engine& engine, const GeneralOptions& general) {
  try {
    engine.save_profile();
  } catch (const Error& error) {
    general.note(error.what());
  }
}

std::optional<std::string> find_named_model(const ModelOptions& options,
                                            const std::string& argument) {
  if (is_model(argument)) return argument;
  if (has_blank(argument) || begins_like_path(argument)) return std::nullopt;
  return find_by_name({options.models, hub_cache_if_there()}, argument);
}

void refuse_model(const ModelOptions& options, const std::string& argument) {
  if (file_exists(argument)) {
    fail(Errc::NotFound,
         "{}: no such model: it is a file, and a model is a directory, a .safetensors or a .gguf "
         "file",
         argument);
  }
  refuse_name({options.models, hub_cache_if_there()}, argument);
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
          "The first argument is the model: a directory, a .gguf or .safetensors file, a name in "
          "--models,")
      .note("or ORG/NAME, with @REVISION or :QUANTIZATION, that moeflux pull has fetched.")
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
