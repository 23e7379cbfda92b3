#include "cli/commands/rm_hub.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "source/checkpoint_files.h"
#include "source/hub_cache.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;

std::uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

// The names of the blobs that links lead to, but for links in `leaving`.
std::set<std::string> linked_blobs(const std::string& folder,
                                   const std::set<std::string>& leaving) {
  std::set<std::string> blobs;
  for (const auto& each : fs::recursive_directory_iterator(folder + "/snapshots")) {
    if (each.is_symlink() && !leaving.contains(each.path().string()))
      blobs.insert(fs::read_symlink(each.path()).filename().string());
  }
  return blobs;
}

void remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);  // removes links, never what they lead to
  if (error) fail(Errc::Io, "{}: cannot be removed: {}", path.string(), error.message());
}

}  // namespace

std::string hub_folder_of(const std::string& model_path) {
  for (fs::path path = fs::path(model_path).lexically_normal(); path.has_relative_path();
       path = path.parent_path()) {
    if (is_hub_folder(path.string())) return path.string();
  }
  return "";
}

HubRemoval plan_hub_removal(const std::string& folder, const CatalogEntry& model) {
  HubRemoval removal{.name = model.name, .path = folder, .folder = folder, .files = {}};
  removal.whole = fs::is_directory(model.path);
  if (removal.whole) {
    for (const auto& each : fs::directory_iterator(folder + "/blobs"))
      removal.bytes += size_of(each.path());
    return removal;
  }
  removal.path = model.path;
  const fs::path path = model.path;
  std::set<std::string> links;
  for (const std::string& part : shard_set(path.filename().string()))
    links.insert((path.parent_path() / part).string());
  const std::set<std::string> kept = linked_blobs(folder, links);
  for (const std::string& link : links) {
    removal.files.push_back(link);
    if (!fs::is_symlink(link)) continue;
    const std::string blob = fs::read_symlink(link).filename().string();
    if (kept.contains(blob)) continue;
    removal.files.push_back(folder + "/blobs/" + blob);
    removal.bytes += size_of(removal.files.back());
  }
  return removal;
}

void remove_hub_model(const HubRemoval& removal) {
  for (const std::string& file : removal.files) remove(file);
  if (!removal.whole) return;
  // What names it goes first: one that was removed by half is none, and can be fetched again.
  for (const char* part : {"/refs", "/snapshots", ""}) remove(removal.folder + part);
  const fs::path folder = removal.folder;
  std::error_code ignored;
  fs::remove_all(folder.parent_path() / ".locks" / folder.filename(), ignored);
}

}  // namespace moeflux::cli
