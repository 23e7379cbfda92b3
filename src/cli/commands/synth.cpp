// moeflux synth: a model of a released shape with random weights, for measurements.
#include "convert/synth/synth.h"

#include <algorithm>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/build_info.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"

namespace moeflux::cli {
namespace {

struct SynthArguments {
  GeneralOptions general;
  std::string like;
  std::string format = "container";
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> threads;
  double skew = 0;
  std::int64_t seed = 1;
  bool mtp = false;
  bool force = false;
  bool json = false;
};

SynthFormat parse_format(const std::string& name) {
  if (name == "container") return SynthFormat::Container;
  if (name == "mlx") return SynthFormat::Mlx;
  return SynthFormat::FlashMoe;
}

SynthOptions synth_options(const SynthArguments& options) {
  SynthOptions result;
  result.format = parse_format(options.format);
  if (options.mtp && result.format == SynthFormat::FlashMoe)
    throw UsageError("--mtp: the flash-moe layout has no place for that head");
  if (!(options.skew >= 0 && options.skew <= 4)) {
    throw UsageError("--skew must be from 0 to 4");
  }
  if (options.threads && (*options.threads < 0 || *options.threads > 64)) {
    throw UsageError("--threads must be from 0 (every core, at most 8) to 64");
  }
  result.statistics = {.skew = options.skew, .seed = static_cast<std::uint64_t>(options.seed)};
  result.force = options.force;
  result.n_threads = static_cast<int>(options.threads.value_or(0));
  result.made_by = "moeflux " + program_version() + " synth";
  return result;
}

SynthShape wanted_shape(const SynthArguments& options) {
  if (options.like.empty()) {
    throw UsageError(fmt::format("--like: give the model whose shape it is to have, one of {}",
                                 fmt::join(synth_shape_names(), ", ")));
  }
  SynthSize size{.n_layers = {}, .mtp = options.mtp};
  if (options.layers) {
    if (*options.layers < 1 || *options.layers > 10'000) {
      throw UsageError("--layers must be at least 1");
    }
    size.n_layers = static_cast<int>(*options.layers);
  }
  try {
    return synth_shape(options.like, size);
  } catch (const Error& error) {  // all of it comes from the options
    const bool unknown = error.code() == Errc::NotFound;
    throw UsageError(fmt::format("{}: {}", unknown ? "--like" : "--layers", error.what()));
  }
}

double write_rate(const SynthReport& report) {
  const auto written = static_cast<double>(report.bytes - report.resumed_bytes);
  return report.write_seconds > 0 ? written / report.write_seconds : 0;
}

Json report_json(const SynthReport& report, const SynthArguments& options, const std::string& to) {
  return {{"directory", to},
          {"like", options.like},
          {"format", options.format},
          {"skew", options.skew},
          {"seed", options.seed},
          {"fingerprint", report.fingerprint},
          {"bytes", report.bytes},
          {"resumed_bytes", report.resumed_bytes},
          {"tensors", report.n_tensors},
          {"experts", report.n_experts},
          {"write_seconds", report.write_seconds},
          {"verify_seconds", report.verify_seconds},
          {"bytes_per_second", write_rate(report)}};
}

std::string report_text(const SynthReport& report, const SynthArguments& options,
                        const std::string& to) {
  std::string text = fmt::format("model        {}\n", to);
  text +=
      fmt::format("shape        {}, skew {}, seed {}\n", options.like, options.skew, options.seed);
  text += fmt::format("weights      {} in {} dense tensors and {} experts\n",
                      format_bytes(report.bytes), report.n_tensors, report.n_experts);
  if (report.resumed_bytes > 0) {
    text += fmt::format("resumed      {} were already there\n", format_bytes(report.resumed_bytes));
  }
  text += fmt::format("written      in {} at {}/s\n", format_duration(report.write_seconds),
                      format_bytes(static_cast<std::uint64_t>(write_rate(report))));
  if (report.verify_seconds > 0) {
    text += fmt::format("read back    in {}\n", format_duration(report.verify_seconds));
  }
  if (!report.fingerprint.empty()) text += fmt::format("fingerprint  {}\n", report.fingerprint);
  return text;
}

int run(const SynthArguments& options, const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("give the new directory");
  const SynthShape shape = wanted_shape(options);
  SynthOptions synth_with = synth_options(options);
  const InterruptGuard guard;
  SynthReport report;
  try {
    StageProgress progress(options.general);
    synth_with.progress = [&](const ConvertProgress& p) { progress.update(p); };
    report = synthesize(shape, arguments[0], synth_with);
  } catch (const Error& error) {
    if (error.code() == Errc::Cancelled) {
      options.general.note(synth_with.format == SynthFormat::Container
                               ? "interrupted; the same command goes on"
                               : "interrupted; --force starts over");
    }
    throw;
  }
  write_stdout(options.json ? dump_json(report_json(report, options, arguments[0]), 2) + "\n"
                            : report_text(report, options, arguments[0]));
  return kSuccess;
}

}  // namespace

void add_synth_command(CommandLine& line) {
  const auto options = std::make_shared<SynthArguments>();
  Command& command =
      line.add("synth", "Make a model of a released shape with random weights, for measurements.");
  command.arguments("DIRECTORY", 1);
  command.group("Model")
      .option("--like", options->like, "SHAPE", "a released model: one of the shapes below")
      .option("--layers", options->layers, "N", "only the first N layers (default: all)")
      .flag("--mtp", options->mtp, "with the head that predicts the token after the next")
      .option("--seed", options->seed, "N", "other weights for another number (default: 1)");
  command.group("Routing").option(
      "--skew", options->skew, "Z",
      "experts are chosen by a Zipf law of exponent Z (default: 0, all alike)");
  command.group("Output")
      .option("--format", options->format, "NAME",
              "container, mlx or flash-moe (default: container)")
      .choices({"container", "mlx", "flash-moe"})
      .flag("--force", options->force, "replace the model that is in the directory")
      .flag("--json", options->json, "print JSON")
      .option("-t,--threads", options->threads, "N", "threads (default: cores, at most 8)");
  add_general_options(command, options->general);
  command.example("synth --like qwen3.6-35b-a3b /data/synth-35b")
      .example("synth --like qwen3.6-35b-a3b --skew 1 /data/synth-35b-skewed")
      .example("synth --like cogito-v2-671b --layers 5 --format mlx /data/synth-671b");
  const std::vector<std::string> shapes = synth_shape_names();
  constexpr std::size_t kOnALine = 5;
  for (std::size_t i = 0; i < shapes.size(); i += kOnALine) {
    const auto some = std::span(shapes).subspan(i, std::min(kOnALine, shapes.size() - i));
    command.note(fmt::format("{}{}", i == 0 ? "Shapes: " : "        ", fmt::join(some, ", ")));
  }
  command.note("With a skew, neighbouring tokens choose alike; 1 is most like released models.");
  command.note("Equal options give equal bytes, and the same weights in every format.");
  command.run(options, run);
}

}  // namespace moeflux::cli
