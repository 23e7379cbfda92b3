// moeflux rm: removes a model from the directory of models. What will go is known, and shown,
// before anything goes.
//
// A model that is a link loses the link only. Nothing is removed through a link, and nothing
// outside of the model's directory but the stripes of a container, and those only where name and
// size are what the manifest says: a manifest may come from a stranger.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/commands/rm_hub.h"
#include "cli/options/general_options.h"
#include "cli/options/hub_options.h"
#include "cli/options/model_options.h"
#include "convert/output_file.h"
#include "engine/model_catalog.h"
#include "source/checkpoint_files.h"
#include "source/container.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;

struct RemovalPlan {
  std::string name, path;
  std::string models;                // the directory that holds it
  bool is_link = false;              // only the link goes
  std::uint64_t bytes = 0;           // that are freed, stripes included
  std::vector<std::string> stripes;  // files on other drives
  std::vector<std::string> kept;     // files the manifest names that are left: why
  std::vector<std::string> files;    // of a model that is no directory, in their order
};

constexpr std::uint64_t kMaxManifestBytes = 64u << 20;

// The size of a regular file that only one name leads to; removing another frees nothing.
std::uint64_t freed_by(const fs::path& path) {
  struct stat info {};
  const bool counts =
      ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1;
  return counts ? static_cast<std::uint64_t>(info.st_size) : 0;
}

bool is_inside(const fs::path& path, const fs::path& directory) {
  const fs::path relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

// As the converter names them.
bool is_expert_file(const std::string& name) {
  constexpr std::string_view kStart = "experts-", kEnd = ".bin";
  return name.size() > kStart.size() + kEnd.size() && name.starts_with(kStart) &&
         name.ends_with(kEnd) &&
         std::all_of(name.begin() + kStart.size(), name.end() - kEnd.size(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<ContainerManifest> read_manifest(const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, kManifestFile);
  if (!file_exists(path)) return std::nullopt;
  try {
    return parse_manifest(read_text_file(path, kMaxManifestBytes), path);
  } catch (const Error&) {
    return std::nullopt;  // a damaged model must still be removable
  }
}

void add_stripe(const ContainerFile& file, std::uint64_t bytes, const std::string& path,
                RemovalPlan& plan) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return;  // gone already
  if (!is_expert_file(file.name)) {
    plan.kept.push_back(path + ": its name is not that of a stripe");
  } else if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) != bytes) {
    plan.kept.push_back(
        fmt::format("{}: is not the file of {} bytes that was written", path, bytes));
  } else {
    plan.stripes.push_back(path);
    plan.bytes += freed_by(path);
  }
}

void add_stripes(RemovalPlan& plan) {
  const std::optional<ContainerManifest> manifest = read_manifest(plan.path);
  if (!manifest) return;
  const fs::path home = fs::canonical(plan.path);
  for (const ContainerFile& file : manifest->files) {
    std::uint64_t record_bytes = 0;
    for (const ContainerStripe& stripe : file.stripes) record_bytes += stripe.bytes_per_record;
    for (const ContainerStripe& stripe : file.stripes) {
      const std::string path = stripe_path(plan.path, stripe, file.name);
      if (is_inside(fs::weakly_canonical(path), home)) continue;  // goes with the directory
      add_stripe(file, file.bytes / record_bytes * stripe.bytes_per_record, path, plan);
    }
  }
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail(Errc::Io, "{}: cannot be removed: {}", path.string(), error.message());
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);  // removes links, never what they lead to
  if (error) fail(Errc::Io, "{}: cannot be removed: {}", path.string(), error.message());
}

// A directory that nothing is left in; anything else stays.
void remove_if_empty(const fs::path& directory) {
  std::error_code ignored;
  if (fs::is_empty(directory, ignored)) fs::remove(directory, ignored);
}

// Throws Error(BadInput) when the model is not inside of `models`.
RemovalPlan plan_removal(const std::string& models, const CatalogEntry& model) {
  RemovalPlan plan{.name = model.name,
                   .path = model.path,
                   .models = models,
                   .stripes = {},
                   .kept = {},
                   .files = {}};
  const fs::path path = fs::absolute(model.path).lexically_normal();
  const fs::path parent = fs::canonical(path.parent_path()), home = fs::canonical(models);
  if (parent != home && !is_inside(parent, home))
    fail(Errc::BadInput, "{}: lies outside of {}; remove it by other means", plan.path, models);
  plan.is_link = fs::is_symlink(path);
  if (plan.is_link) return plan;
  if (fs::canonical(path) == home)
    fail(Errc::BadInput, "{}: is the directory of models itself; remove it by other means", models);
  if (fs::is_regular_file(path)) {
    for (const std::string& part : shard_set(path.filename().string())) {
      plan.files.push_back((path.parent_path() / part).string());
      plan.bytes += freed_by(plan.files.back());
    }
    return plan;
  }
  for (const fs::directory_entry& each : fs::recursive_directory_iterator(path))
    plan.bytes += freed_by(each.path());
  add_stripes(plan);
  return plan;
}

// Throws Error(BadInput) when a conversion writes there, Error(Io) when something cannot be
// removed. What says that this is a model goes last: one that was removed by half can be removed
// again.
void remove_model(const RemovalPlan& plan) {
  if (plan.is_link) return remove_file(plan.path);
  const auto leave_parent = [&] {
    const fs::path parent = fs::canonical(fs::path(plan.path).parent_path());
    if (parent != fs::canonical(plan.models)) remove_if_empty(parent);
  };
  if (!plan.files.empty()) {
    for (auto file = plan.files.rbegin(); file != plan.files.rend(); ++file) remove_file(*file);
    return leave_parent();
  }
  const DirectoryLock lock(plan.path);
  for (const std::string& stripe : plan.stripes) {
    remove_file(stripe);
    remove_if_empty(fs::path(stripe).parent_path());
  }
  std::vector<fs::path> inside;
  for (const fs::directory_entry& each : fs::directory_iterator(plan.path))
    inside.push_back(each.path());
  const auto is_last = [](const fs::path& path) {
    return path.filename() == kManifestFile || path.filename() == "config.json";
  };
  std::stable_partition(inside.begin(), inside.end(), std::not_fn(is_last));
  for (const fs::path& path : inside) remove_tree(path);
  remove_tree(plan.path);
  leave_parent();
}

struct RmArguments {
  ModelOptions model;
  GeneralOptions general;
  bool yes = false, json = false;
};

std::string describe(const RemovalPlan& plan) {
  if (plan.is_link) return fmt::format("the link {}, not what it leads to", plan.path);
  return fmt::format("{}, {}{}", plan.path, format_bytes(plan.bytes),
                     plan.stripes.empty() ? ""
                                          : fmt::format(", with {} files elsewhere such as {}",
                                                        plan.stripes.size(), plan.stripes[0]));
}

bool agreed(const std::string& what) {
  if (!stdin_is_terminal())
    throw UsageError("nobody can be asked here; give --yes to remove without asking");
  write_stderr(fmt::format("remove {}? [y/N] ", what));
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// Where the name is looked for: in --models, else in the hub's cache. Both, where both are there
// and the first has none of that name.
CatalogEntry find_removed(const RmArguments& options, const std::string& name,
                          std::string& directory) {
  const std::string cache = hub_cache_if_there();
  directory = options.model.models || cache.empty() ? models_directory(options.model) : cache;
  std::vector<CatalogEntry> models = list_models(directory);
  try {
    return find_model(models, name);
  } catch (const Error& error) {
    if (error.code() != Errc::NotFound || directory == cache || cache.empty()) throw;
    const std::vector<CatalogEntry> cached = list_models(cache);
    models.insert(models.end(), cached.begin(), cached.end());
    directory = cache;
    return find_model(models, name);
  }
}

int remove_from_cache(const RmArguments& options, const HubRemoval& removal) {
  if (!options.yes && !agreed(fmt::format("{} from the hub's cache, {}", removal.path,
                                          format_bytes(removal.bytes)))) {
    options.general.note("nothing was removed");
    return kFailure;
  }
  remove_hub_model(removal);
  write_stdout(options.json ? dump_json({{"name", removal.name},
                                         {"path", removal.path},
                                         {"link", false},
                                         {"bytes_freed", removal.bytes},
                                         {"kept", Json::array()}}) +
                                  "\n"
                            : fmt::format("{}: removed, {} freed\n", removal.name,
                                          format_bytes(removal.bytes)));
  return kSuccess;
}

int run(const RmArguments& options, const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("which model? moeflux ls lists them");
  std::string directory;
  const CatalogEntry model = find_removed(options, arguments[0], directory);
  if (const std::string folder = hub_folder_of(model.path); !folder.empty())
    return remove_from_cache(options, plan_hub_removal(folder, model));
  const RemovalPlan plan = plan_removal(directory, model);
  if (!options.yes && !agreed(describe(plan))) {
    options.general.note("nothing was removed");
    return kFailure;
  }
  remove_model(plan);
  for (const std::string& kept : plan.kept) options.general.note("left: " + kept);
  write_stdout(options.json
                   ? dump_json({{"name", plan.name},
                                {"path", plan.path},
                                {"link", plan.is_link},
                                {"bytes_freed", plan.bytes},
                                {"kept", plan.kept}}) +
                         "\n"
                   : fmt::format("{}: removed, {} freed\n", plan.name, format_bytes(plan.bytes)));
  return kSuccess;
}

}  // namespace

void add_rm_command(CommandLine& line) {
  const auto options = std::make_shared<RmArguments>();
  Command& command =
      line.add("rm", "Remove a model from the directory of models, or from the hub's cache.");
  command.arguments("NAME", 1);
  command.flag("-y,--yes", options->yes, "do not ask").command_line_only();
  command.flag("--json", options->json, "print the result as JSON");
  add_models_option(command, options->model);
  add_general_options(command, options->general);
  command.example("rm qwen3.6").example("rm --yes --models /data/models qwen/qwen3.6");
  command.note("A model that is a link loses the link only. Stripes of a container go with it.");
  command.run(options, run);
}

}  // namespace moeflux::cli
