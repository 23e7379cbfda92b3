// moeflux store: what the prefix store holds, whether it is sound, and how to empty it.
#include <algorithm>
#include <ctime>
#include <memory>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/prefix_session.h"
#include "engine/prefix/prefix_store_directory.h"
#include "source/checksum.h"

namespace moeflux::cli {
namespace {

struct StoreArguments {
  std::optional<std::string> directory;
  bool json = false;
  GeneralOptions general;
};

std::int64_t seconds_since(std::int64_t time_ns) {
  return std::max<std::int64_t>(0, std::time(nullptr) - time_ns / 1'000'000'000);
}

std::string age(std::int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s ago", seconds);
  if (seconds < 7200) return fmt::format("{} min ago", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h ago", seconds / 3600);
  return fmt::format("{} days ago", seconds / 86400);
}

Json summary_json(const std::string& directory, const PrefixStoreSummary& summary) {
  Json json = {{"directory", directory},       {"bytes", summary.bytes},
               {"files", summary.n_files},     {"leftovers", summary.n_leftovers},
               {"foreign", summary.n_foreign}, {"written_today", summary.written_today}};
  json["models"] = Json::array();
  for (const PrefixStoreModel& model : summary.models) {
    json["models"].push_back({{"root", checksum_text(model.root)},
                              {"identity", model.identity},
                              {"states", model.n_states},
                              {"blocks", model.n_blocks},
                              {"bytes", model.bytes},
                              {"longest", model.longest},
                              {"used_seconds_ago", seconds_since(model.used_ns)}});
  }
  return json;
}

std::string summary_text(const std::string& directory, const PrefixStoreSummary& summary) {
  std::string text =
      fmt::format("{}: {} in {} files, {} written today\n", directory, format_bytes(summary.bytes),
                  summary.n_files, format_bytes(summary.written_today));
  for (const PrefixStoreModel& model : summary.models) {
    text += fmt::format("{:>10}  {} states, {} blocks, up to {} tokens, used {}  {}\n",
                        format_bytes(model.bytes), model.n_states, model.n_blocks, model.longest,
                        age(seconds_since(model.used_ns)), model.identity);
  }
  if (summary.n_foreign > 0)
    text += fmt::format("{} files or folders there are not of the store\n", summary.n_foreign);
  return text;
}

int list(const StoreArguments& options, const std::string& directory) {
  const PrefixStoreSummary summary = summarize_prefix_store(directory);
  write_stdout(options.json ? dump_json(summary_json(directory, summary), 2) + "\n"
                            : summary_text(directory, summary));
  return kSuccess;
}

int clear(const StoreArguments& options, const std::string& directory) {
  const std::uint64_t bytes = summarize_prefix_store(directory).bytes;
  const std::uint64_t n_files = clear_prefix_store(directory);
  write_stdout(
      options.json
          ? dump_json(
                {{"directory", directory}, {"files_removed", n_files}, {"bytes_removed", bytes}}) +
                "\n"
          : fmt::format("{}: {} files removed, {}\n", directory, n_files, format_bytes(bytes)));
  return kSuccess;
}

int verify(const StoreArguments& options, const std::string& directory) {
  const PrefixStoreCheck check = verify_prefix_store(directory);
  if (options.json) {
    write_stdout(dump_json({{"directory", directory},
                            {"files", check.n_files},
                            {"bytes", check.bytes},
                            {"damaged", check.damaged}},
                           2) +
                 "\n");
  } else {
    for (const std::string& line : check.damaged) write_stdout(line + "\n");
    write_stdout(fmt::format("{}: {} files are sound, {}; {} were damaged\n", directory,
                             check.n_files, format_bytes(check.bytes), check.damaged.size()));
  }
  return check.damaged.empty() ? kSuccess : kFailure;
}

int run(const StoreArguments& options, const std::vector<std::string>& arguments) {
  const std::string directory = options.directory.value_or(default_prefix_directory());
  if (directory.empty())
    fail(Errc::NotFound, "there is no home for a prefix store; name one: --prefix-store DIR");
  const std::string action = arguments.empty() ? "ls" : arguments[0];
  if (action == "ls") return list(options, directory);
  if (action == "clear") return clear(options, directory);
  if (action == "verify") return verify(options, directory);
  throw UsageError(fmt::format("store cannot \"{}\", only ls, clear, verify", action));
}

}  // namespace

void add_store_command(CommandLine& line) {
  const auto options = std::make_shared<StoreArguments>();
  Command& command = line.add("store", "List, verify and clear the prefix store.");
  command.arguments("[ls | clear | verify]", 1);
  command.group("Options")
      .option("--prefix-store", options->directory, "DIR",
              "the store (default: moeflux/prefixes in the cache directory)")
      .flag("--json", options->json, "print the result as JSON");
  add_general_options(command, options->general);
  command.example("store").example("store verify --json").example("store clear");
  command.note(
      "verify reads every file and removes damaged ones; its exit code is 1 if there are any.");
  command.run(options, run);
}

}  // namespace moeflux::cli
