#include "source/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--", kSeparator = "--";
constexpr std::size_t kMaxPart = 96, kMaxPath = 1024, kMaxPiece = 255;

bool is_part(std::string_view part) {
  if (part.empty() || part.size() > kMaxPart || part.front() == '.' || part.front() == '-')
    return false;
  // Two dashes stand for a slash in the name of the folder.
  if (part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos)
    return false;
  return std::all_of(part.begin(), part.end(), [](unsigned char c) {
    return (std::isalnum(c) != 0 && c < 0x80) || c == '.' || c == '-' || c == '_';
  });
}

bool is_piece(std::string_view piece) {
  return !piece.empty() && piece.size() <= kMaxPiece && piece != "." && piece != "..";
}

bool is_plain_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath) return false;
  const bool odd = std::any_of(path.begin(), path.end(),
                               [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '\\'; });
  if (odd || find_invalid_utf8(path) != std::string::npos) return false;
  const std::vector<std::string> pieces = split(path, '/');
  return std::all_of(pieces.begin(), pieces.end(), is_piece);
}

std::optional<std::string> snapshot_of_commit(const std::string& folder,
                                              const std::string& commit) {
  const std::string path = folder + "/snapshots/" + commit;
  return directory_exists(path) ? std::optional(path) : std::nullopt;
}

std::optional<std::string> newest_snapshot(const std::string& folder) {
  std::optional<std::string> newest;
  fs::file_time_type time;
  std::error_code error;
  for (fs::directory_iterator it(folder + "/snapshots", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) continue;
    const fs::file_time_type written = it->last_write_time(ignored);
    if (newest && written <= time) continue;
    newest = it->path().string();
    time = written;
  }
  return newest;
}

}  // namespace

std::string_view without_hub_host(std::string_view name) {
  const std::string_view endpoint = kDefaultEndpoint;
  for (const std::string_view host :
       {std::string_view(kShortHost), endpoint.substr(endpoint.find("://") + 3)}) {
    if (name.size() > host.size() && name.starts_with(host) && name[host.size()] == '/')
      return name.substr(host.size() + 1);
  }
  return name;
}

bool is_hub_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return is_part(name);
  return is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

bool is_hub_path(std::string_view name) {
  return name.find('/') != std::string_view::npos && is_hub_name(name);
}

std::string hub_folder(std::string_view name) {
  std::string folder(kPrefix);
  for (const char c : name) {
    if (c == '/')
      folder += kSeparator;
    else
      folder += c;
  }
  return folder;
}

std::optional<std::string> hub_name(std::string_view folder) {
  if (!folder.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = folder.substr(kPrefix.size());
  const std::size_t at = rest.find(kSeparator);
  std::string name(rest.substr(0, at));
  if (at != std::string_view::npos) {
    name += '/';
    name += rest.substr(at + kSeparator.size());
  }
  return is_hub_name(name) ? std::optional(name) : std::nullopt;
}

bool is_hub_file(std::string_view path) {
  return is_plain_path(path);
}

bool is_hub_revision(std::string_view revision) {
  return is_plain_path(revision);
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_hub_folder(const std::string& directory) {
  std::string name = fs::path(directory).lexically_normal().filename().string();
  if (name.empty())  // after a slash at the end
    name = fs::path(directory).lexically_normal().parent_path().filename().string();
  return hub_name(name) && directory_exists(directory + "/snapshots");
}

std::optional<std::string> hub_snapshot(const std::string& folder, std::string_view revision) {
  const std::string name(revision.empty() ? "main" : revision);
  if (!is_hub_revision(name)) return std::nullopt;
  if (is_commit(name)) return snapshot_of_commit(folder, name);
  const std::string ref = folder + "/refs/" + name;
  if (file_exists(ref)) {
    std::string commit = read_text_file(ref, 4096);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0)
      commit.pop_back();
    if (is_commit(commit)) {
      if (auto found = snapshot_of_commit(folder, commit)) return found;
    }
  }
  return revision.empty() ? newest_snapshot(folder) : std::nullopt;
}

std::vector<std::string> hub_cache_names(const std::string& cache) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(cache, error), end; !error && it != end; it.increment(error)) {
    const auto name = hub_name(it->path().filename().string());
    if (name && hub_snapshot(it->path().string())) names.push_back(*name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> find_in_hub_cache(const std::string& cache, std::string_view text) {
  const std::size_t at = text.find('@');
  const std::string_view revision =
      at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  if (at != std::string_view::npos && revision.empty()) return std::nullopt;
  std::string name(text.substr(0, at));
  if (const auto folder_of = hub_name(name)) name = *folder_of;
  if (!is_hub_name(name)) return std::nullopt;
  const std::string folder = cache + "/" + hub_folder(name);
  if (!directory_exists(folder)) return std::nullopt;
  return hub_snapshot(folder, revision);
}

}  // namespace moeflux
