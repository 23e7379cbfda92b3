// moeflux convert: a checkpoint of any layout becomes a container, one aligned record per expert.
#include "convert/convert.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "cli/build_info.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"

namespace moeflux::cli {
namespace {

struct ConvertArguments {
  GeneralOptions general;
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group;
  std::optional<std::int64_t> threads;
  std::string stripe;
  bool force = false;
  bool json = false;
};

template <std::size_t N>
int one_of(const std::array<int, N>& choices, std::int64_t value, const char* option) {
  for (const int choice : choices)
    if (choice == value) return choice;
  throw UsageError(fmt::format("{}: {} is not one of {}", option, value, fmt::join(choices, ", ")));
}

// "DIR=3": the directory's share of every record; without a number it is measured.
StripeShare parse_stripe(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  StripeShare share{text.substr(0, equals), 0};
  if (equals != std::string::npos) {
    share.weight = to_number<double>(text.substr(equals + 1)).value_or(0);
    if (!(share.weight > 0)) {
      throw UsageError(
          fmt::format("--stripe: \"{}\" is not a directory with a share, as DIR=3", text));
    }
  }
  if (share.directory.empty()) {
    throw UsageError("--stripe: needs directories, as DIR,DIR or DIR=3,DIR=1");
  }
  return share;
}

std::vector<StripeShare> parse_stripes(const std::string& text) {
  std::vector<StripeShare> shares;
  if (text.empty()) return shares;
  for (const std::string& part : split(text, ',')) shares.push_back(parse_stripe(part));
  const auto n_measured = std::count_if(shares.begin(), shares.end(),
                                        [](const StripeShare& share) { return share.weight == 0; });
  if (n_measured > 0 && n_measured < std::ssize(shares)) {
    throw UsageError("--stripe: give shares for all directories (DIR=3,DIR=1) or for none");
  }
  return shares;
}

ConvertOptions convert_options(const ConvertArguments& options) {
  ConvertOptions result;
  if (options.group && !options.bits) {
    throw UsageError("--group needs --experts-bits");
  }
  if (options.bits) {
    result.requantize =
        Requantize{.bits = one_of(kExpertBits, *options.bits, "--experts-bits"),
                   .group = one_of(kExpertGroups, options.group.value_or(64), "--group")};
  }
  if (options.threads && (*options.threads < 0 || *options.threads > 64)) {
    throw UsageError("--threads must be from 0 (every core, at most 8) to 64");
  }
  result.n_threads = static_cast<int>(options.threads.value_or(0));
  result.stripes = parse_stripes(options.stripe);
  result.force = options.force;
  result.converted_by = "moeflux " + program_version();
  return result;
}

Json report_json(const ConvertReport& report, const std::string& from, const std::string& to) {
  Json stripes = Json::array();
  for (const StripeShare& share : report.stripes) {
    stripes.push_back({{"directory", share.directory}, {"weight", share.weight}});
  }
  Json banks = Json::array();
  for (const BankReport& bank : report.banks) {
    Json matrices = Json::array();
    for (const MatrixReport& matrix : bank.matrices) {
      matrices.push_back({{"projection", matrix.projection},
                          {"from", matrix.from},
                          {"to", matrix.to},
                          {"requantized", matrix.requantized},
                          {"relative_error", matrix.relative_error}});
    }
    banks.push_back({{"name", bank.name}, {"matrices", std::move(matrices)}});
  }
  return {{"source", from},
          {"container", to},
          {"fingerprint", report.fingerprint},
          {"bytes", report.bytes},
          {"resumed_bytes", report.resumed_bytes},
          {"tensors", report.n_tensors},
          {"experts", report.n_records},
          {"stripes", std::move(stripes)},
          {"layers", std::move(banks)}};
}

std::string error_table(const ConvertReport& report) {
  std::size_t width = 8;
  for (const BankReport& bank : report.banks) width = std::max(width, bank.name.size());
  std::string table;
  for (const BankReport& bank : report.banks) {
    for (const MatrixReport& matrix : bank.matrices) {
      if (!matrix.requantized) continue;
      if (table.empty()) {
        table = fmt::format("\n{:<{}}  {:<12}  {:>14}  {}\n", "layer", width, "matrix",
                            "relative error", "format");
      }
      table += fmt::format("{:<{}}  {:<12}  {:>14.4f}  {} -> {}\n", bank.name, width,
                           matrix.projection, matrix.relative_error, matrix.from, matrix.to);
    }
  }
  return table;
}

std::string report_text(const ConvertReport& report, const std::string& to) {
  std::string text = fmt::format("container    {}\n", to);
  text += fmt::format("weights      {} in {} dense tensors and {} experts, written and verified\n",
                      format_bytes(report.bytes), report.n_tensors, report.n_records);
  if (report.resumed_bytes > 0) {
    text += fmt::format("resumed      {} were already there\n", format_bytes(report.resumed_bytes));
  }
  double total = 0;
  for (const StripeShare& share : report.stripes) total += share.weight;
  for (const StripeShare& share : report.stripes) {
    text +=
        fmt::format("stripe       {} ({:.0f} %)\n", share.directory, 100 * share.weight / total);
  }
  text += fmt::format("fingerprint  {}\n", report.fingerprint);
  return text + error_table(report);
}

int run(const ConvertArguments& options, const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) throw UsageError("give the checkpoint and the new directory");
  ConvertOptions convert_with = convert_options(options);
  if (arguments[1].empty() || file_exists(arguments[1])) {
    throw UsageError(fmt::format("\"{}\" is no directory to write a container to", arguments[1]));
  }
  const InterruptGuard guard;
  ConvertReport report;
  try {
    StageProgress progress(options.general);
    convert_with.progress = [&](const ConvertProgress& p) { progress.update(p); };
    report = convert(arguments[0], arguments[1], convert_with);
  } catch (const Error& error) {
    if (error.code() == Errc::Cancelled) {
      options.general.note("interrupted; the same command resumes the conversion");
    }
    throw;
  }
  write_stdout(options.json ? dump_json(report_json(report, arguments[0], arguments[1]), 2) + "\n"
                            : report_text(report, arguments[1]));
  return kSuccess;
}

}  // namespace

void add_convert_command(CommandLine& line) {
  const auto options = std::make_shared<ConvertArguments>();
  Command& command =
      line.add("convert", "Make a container of a model: one aligned, checksummed read per expert.");
  command.arguments("MODEL DIRECTORY", 2);
  command.group("Experts")
      .option("--experts-bits", options->bits, "N",
              "requantize experts to 2, 3, 4, 5, 6 or 8 bits (default: keep them)")
      .option("--group", options->group, "N",
              "columns that share a scale: 32, 64 or 128 (default: 64)");
  command.group("Drives").option(
      "--stripe", options->stripe, "DIR,DIR",
      "split every expert over these directories by their speed, or DIR=3,DIR=1");
  command.group("Output")
      .flag("--force", options->force, "replace the container that is in the directory")
      .flag("--json", options->json, "print JSON")
      .option("-t,--threads", options->threads, "N",
              "experts at a time (default: cores, at most 8)");
  add_general_options(command, options->general);
  command.example("convert models/demo /data/demo")
      .example("convert Qwen3.6-35B-A3B /data/qwen --experts-bits 4")
      .example("convert DeepSeek-V3 /data/v3 --stripe /ssd1/v3,/ssd2/v3");
  command.note("What is killed half-way resumes with the same command. The source is only read.");
  command.run(options, run);
}

}  // namespace moeflux::cli
