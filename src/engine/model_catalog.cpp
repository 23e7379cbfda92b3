#include "engine/model_catalog.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include <sys/stat.h>

#include "base/error.h"
#include "base/suggestion.h"
#include "families/family.h"
#include "model/map_tensors.h"
#include "source/checkpoint_files.h"
#include "source/container.h"
#include "source/flash_moe.h"
#include "source/gguf.h"
#include "source/hub_cache.h"
#include "source/safetensors.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr int kLevels = 2;        // "org/name"
constexpr int kLevelsInside = 3;  // of a model's own directories, such as packed_experts/
constexpr std::size_t kMaxFiles = 100'000, kMaxModels = 10'000;
constexpr std::string_view kTag = ":latest";

bool holds_model(const std::string& directory) {
  if (holds_container(directory) || holds_unfinished_container(directory) ||
      holds_flash_moe(directory) || holds_safetensors(directory))
    return true;
  // Beside GGUF files a config says nothing.
  const std::size_t n_files = gguf_models(list_files(directory)).size();
  return n_files == 1 || (n_files == 0 && file_exists(directory + "/config.json"));
}

// Weights in a form that is not read: better listed with the reason than not at all.
bool holds_other_weights(const std::string& directory) {
  const std::vector<std::string> names = list_files(directory);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return is_gguf_name(name) || name.ends_with(".safetensors") ||
           (name.starts_with("pytorch_model") && name.ends_with(".bin"));
  });
}

std::vector<std::string> list_directories(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    std::string name = it->path().filename().string();
    if (!name.starts_with('.') && it->is_directory(ignored)) names.push_back(std::move(name));
    if (names.size() >= kMaxModels) break;
  }
  if (error) fail(Errc::Io, "{}: cannot list the directory: {}", directory, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// Adds up the files below, by the file system's own words.
void measure(const std::string& directory, int levels, std::size_t& n_files, CatalogEntry& entry) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    struct stat info {};
    const std::string path = it->path().string();
    if (++n_files > kMaxFiles) return;
    if (::stat(path.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode) && levels > 1) measure(path, levels - 1, n_files, entry);
    if (!S_ISREG(info.st_mode)) continue;
    entry.bytes += static_cast<std::uint64_t>(info.st_size);
    entry.modified = std::max<std::int64_t>(entry.modified, info.st_mtime);
  }
}

// What can be said of a model without opening it.
CatalogEntry make_entry(const std::string& path, const std::string& name) {
  CatalogEntry entry{.name = name, .path = path};
  std::size_t n_files = 0;
  measure(path, kLevelsInside, n_files, entry);
  return entry;
}

// A model in a GGUF file, with all of its parts.
CatalogEntry make_file_entry(const std::string& directory, const std::string& file,
                             const std::string& name) {
  CatalogEntry entry{.name = name, .path = directory + "/" + file};
  for (const std::string& part : shard_set(file)) {
    struct stat info {};
    if (::stat((directory + "/" + part).c_str(), &info) != 0) continue;
    entry.bytes += static_cast<std::uint64_t>(info.st_size);
    entry.modified = std::max<std::int64_t>(entry.modified, info.st_mtime);
  }
  return entry;
}

void add_files(const std::string& directory, const std::string& prefix,
               std::vector<CatalogEntry>& entries) {
  for (const std::string& file : gguf_models(list_files(directory))) {
    if (entries.size() >= kMaxModels) return;
    if (!file.starts_with('.'))
      entries.push_back(make_file_entry(directory, file, prefix + gguf_model_name(file)));
  }
}

void add_models(const std::string& directory, const std::string& prefix, int levels,
                std::vector<CatalogEntry>& entries);

// A model of the hub's cache, "ORG/NAME": what its snapshot has. One that was not fetched to its
// end is none yet.
void add_hub_model(const std::string& folder, const std::string& name,
                   std::vector<CatalogEntry>& entries) {
  const auto snapshot = hub_snapshot(folder);
  if (!snapshot) return;
  if (holds_model(*snapshot))
    entries.push_back(make_entry(*snapshot, name));
  else
    add_models(*snapshot, name + "/", 1, entries);
}

void add_models(const std::string& directory, const std::string& prefix, int levels,
                std::vector<CatalogEntry>& entries) {
  add_files(directory, prefix, entries);
  for (const std::string& base : list_directories(directory)) {
    const std::string path = directory + "/" + base;
    if (entries.size() >= kMaxModels) return;
    try {
      if (is_hub_folder(path)) {
        add_hub_model(path, *hub_name(base), entries);
        continue;
      }
      if (holds_model(path)) {
        entries.push_back(make_entry(path, prefix + base));
        continue;
      }
      const std::size_t n_before = entries.size();
      if (levels > 1)
        add_models(path, prefix + base + "/", levels - 1, entries);
      else
        add_files(path, prefix + base + "/", entries);
      if (entries.size() == n_before && holds_other_weights(path))
        entries.push_back(make_entry(path, prefix + base));
    } catch (const Error& error) {
      entries.push_back({.name = prefix + base, .path = path, .problem = error.what()});
    }
  }
}

std::string name_of(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().empty() ? "model" : path.filename().string();
}

std::vector<CatalogEntry> look_at(const std::string& directory) {
  std::vector<CatalogEntry> entries;
  if (!directory_exists(directory)) fail(Errc::NotFound, "{}: no such directory", directory);
  if (holds_model(directory) && gguf_models(list_files(directory)).empty()) {
    entries.push_back(make_entry(directory, name_of(directory)));
  } else {
    add_models(directory, "", kLevels, entries);
  }
  std::sort(entries.begin(), entries.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) { return a.name < b.name; });
  return entries;
}

// Opens it, to know what it is. Only headers are read.
void inspect(CatalogEntry& entry) {
  if (!entry.problem.empty()) return;
  try {
    const auto source = open_source(entry.path);
    entry.format = layout_name(source->layout());
    std::uint64_t bytes = 0;  // stripes may lie on other drives
    for (int i = 0; i < source->n_disk_files(); ++i) bytes += source->disk_file(i).size();
    entry.bytes = std::max(entry.bytes, bytes);
    const ModelDescription model = describe_model(*source);
    const ParameterCount count = count_parameters(model.index);
    entry.family = model.family->name;
    entry.n_parameters = count.n_parameters;
    entry.expert_bits = count.expert_bits;
  } catch (const std::exception& error) {
    entry.problem = error.what();
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

// The name that was perhaps meant; "" when none is near.
std::string near_name(const std::vector<CatalogEntry>& models, std::string_view name) {
  std::vector<std::string> whole, parts;
  for (const CatalogEntry& each : models) {
    whole.push_back(lower(each.name));
    parts.push_back(lower(last_part(each.name)));
  }
  std::string near = closest(lower(name), whole);
  if (near.empty()) near = closest(lower(name), parts);
  const auto found = std::find_if(models.begin(), models.end(), [&](const CatalogEntry& each) {
    return lower(each.name) == near || lower(last_part(each.name)) == near;
  });
  return near.empty() || found == models.end() ? "" : found->name;
}

[[noreturn]] void refuse_unknown(const std::vector<CatalogEntry>& models, std::string_view name) {
  constexpr std::size_t kMostNamed = 20;
  if (models.empty()) fail(Errc::NotFound, "model '{}' not found: there are none", name);
  const std::string near = near_name(models, name);
  std::string list;
  for (std::size_t i = 0; i < std::min(models.size(), kMostNamed); ++i)
    list += (i > 0 ? ", " : "") + models[i].name;
  if (models.size() > kMostNamed) list += fmt::format(" and {} more", models.size() - kMostNamed);
  fail(Errc::NotFound, "model '{}' not found{}; there are: {}", name,
       near.empty() ? "" : fmt::format(", did you mean {}?", near), list);
}

// The one model that `matches`; null when there is none.
template <class Matches>
const CatalogEntry* find_only(const std::vector<CatalogEntry>& models, std::string_view name,
                              Matches matches) {
  const CatalogEntry* found = nullptr;
  for (const CatalogEntry& each : models) {
    if (!matches(each.name)) continue;
    if (found != nullptr)
      fail(Errc::BadInput, "{} may be {} or {}; give the whole name", name, found->name, each.name);
    found = &each;
  }
  return found;
}

const CatalogEntry* find_called(const std::vector<CatalogEntry>& models, std::string_view name) {
  const std::string low = lower(name);
  if (const auto* found = find_only(models, name, [&](const auto& n) { return n == name; }))
    return found;
  if (const auto* found =
          find_only(models, name, [&](const auto& n) { return last_part(n) == name; }))
    return found;
  if (const auto* found = find_only(models, name, [&](const auto& n) { return lower(n) == low; }))
    return found;
  return find_only(models, name, [&](const auto& n) { return lower(last_part(n)) == low; });
}

// "org/name:Q4_K_M": the GGUF file of org/name with that tag. Also "org/name" where the hub's host
// was before it.
const CatalogEntry* find_tagged(const std::vector<CatalogEntry>& models, std::string_view name) {
  const std::size_t colon = name.find(':');
  const std::string_view plain = name.substr(0, colon);
  if (colon == std::string_view::npos || name.substr(colon) == kTag)
    return find_called(models, plain);
  const std::string_view tag = name.substr(colon + 1);
  std::vector<std::string> paths;
  for (const CatalogEntry& each : models) {
    if (lower(each.name) == lower(plain) && directory_exists(each.path)) {
      if (!find_gguf_by_tag(gguf_models(list_files(each.path)), tag).empty()) return &each;
    } else if (lower(each.name).starts_with(lower(plain) + "/")) {
      paths.push_back(each.path);
    }
  }
  const std::string found = find_gguf_by_tag(paths, tag);
  if (found.empty()) return nullptr;
  return &*std::find_if(models.begin(), models.end(),
                        [&](const CatalogEntry& each) { return each.path == found; });
}

struct MatrixCounter {
  std::int64_t* n;
  void operator()(const StoredMatrix& matrix) const { *n += matrix.rows * matrix.cols; }
  void operator()(const StoredVector&) const {}
};

}  // namespace

std::vector<CatalogEntry> list_models(const std::string& directory) {
  std::vector<CatalogEntry> entries = look_at(directory);
  for (CatalogEntry& each : entries) inspect(each);
  return entries;
}

const CatalogEntry& find_model(const std::vector<CatalogEntry>& models, std::string_view name) {
  if (const CatalogEntry* found = find_called(models, name)) return *found;
  if (name.size() > kTag.size() && name.ends_with(kTag)) {
    const std::string_view plain = name.substr(0, name.size() - kTag.size());
    if (const CatalogEntry* found = find_called(models, plain)) return *found;
  }
  if (const CatalogEntry* found = find_tagged(models, without_hub_host(name))) return *found;
  refuse_unknown(models, name);
}

ModelCatalog::ModelCatalog(std::string directory, std::chrono::milliseconds fresh)
    : directory_(std::move(directory)), fresh_(fresh) {}

void ModelCatalog::look() {
  std::vector<Known> now;
  for (CatalogEntry& entry : look_at(directory_)) {
    const auto same = std::find_if(known_.begin(), known_.end(), [&](const Known& each) {
      return each.seen.path == entry.path && each.seen.bytes == entry.bytes &&
             each.seen.modified == entry.modified && each.seen.problem == entry.problem;
    });
    now.push_back({entry, same == known_.end() ? entry : same->opened});
    if (same == known_.end()) inspect(now.back().opened);
  }
  known_ = std::move(now);
  looked_ = std::chrono::steady_clock::now();
}

std::vector<CatalogEntry> ModelCatalog::list() {
  const std::lock_guard lock(mutex_);
  if (!looked_ || std::chrono::steady_clock::now() - *looked_ >= fresh_) look();
  std::vector<CatalogEntry> entries;
  for (const Known& each : known_) entries.push_back(each.opened);
  return entries;
}

ParameterCount count_parameters(const ModelIndex& index) {
  ParameterCount count;
  std::int64_t n_expert = 0;
  for_each_tensor(index.tensors, MatrixCounter{&count.n_parameters});
  for (const ExpertBank& bank : index.experts) {
    for (const StoredExpertBank* matrices : {&bank.gate, &bank.up, &bank.down}) {
      for (int i = 0; i < matrices->count(); ++i) {
        const StoredMatrix matrix = matrices->at(i);
        n_expert += matrix.rows * matrix.cols;
        count.expert_bytes += matrix.bytes();
      }
    }
  }
  count.n_parameters += n_expert;
  if (n_expert > 0)
    count.expert_bits =
        8.0 * static_cast<double>(count.expert_bytes) / static_cast<double>(n_expert);
  return count;
}

}  // namespace moeflux
