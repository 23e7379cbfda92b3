#include "cli/options/model_names.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/suggestion.h"
#include "engine/model_catalog.h"
#include "hub/url.h"
#include "source/checkpoint_files.h"
#include "source/gguf.h"
#include "source/hub_cache.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

// Of the names one that is the word, or whose last part is; "" when there is none.
std::string called(const std::vector<std::string>& names, const std::string& word) {
  const std::string low = in_lower_case(word);
  std::string found;
  for (const std::string& name : names) {
    if (name == word) return name;
    if (in_lower_case(name) != low && in_lower_case(last_part(name)) != low) continue;
    if (!found.empty() && in_lower_case(found) != in_lower_case(name))
      fail(Errc::BadInput, "{} may be {} or {}; give the whole name", word, found, name);
    found = name;
  }
  return found;
}

// "org/name", with "@revision" or ":tag"; taken apart.
struct HubWord {
  std::string name, revision, tag;
};

HubWord take_apart(const std::string& given) {
  const std::string word(without_hub_host(given));
  const std::size_t mark = word.find_first_of("@:");
  HubWord parts{.name = word.substr(0, mark), .revision = {}, .tag = {}};
  if (mark == std::string::npos) return parts;
  (word[mark] == '@' ? parts.revision : parts.tag) = word.substr(mark + 1);
  if (parts.tag == "latest") parts.tag.clear();
  return parts;
}

std::optional<std::string> gguf_of(const std::string& snapshot, const std::string& tag) {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory(error) || !is_gguf_name(it->path().filename().string())) continue;
    const std::string path = it->path().lexically_relative(snapshot).string();
    if (gguf_models({last_part(path)}).size() == 1) models.push_back(path);
  }
  std::sort(models.begin(), models.end());
  const std::string found = find_gguf_by_tag(models, tag);
  return found.empty() ? std::nullopt : std::optional(snapshot + "/" + found);
}

std::optional<std::string> find_in_cache(const std::string& cache, const std::string& word) {
  const HubWord parts = take_apart(word);
  std::string name = hub_name(parts.name).value_or(parts.name);
  if (!is_hub_name(name)) return std::nullopt;
  std::string folder = cache + "/" + hub_folder(name);
  if (!directory_exists(folder)) {
    name = called(hub_cache_names(cache), name);
    if (name.empty()) return std::nullopt;
    folder = cache + "/" + hub_folder(name);
  }
  const auto snapshot = hub_snapshot(folder, parts.revision);
  if (!snapshot) return std::nullopt;
  return parts.tag.empty() ? snapshot : gguf_of(*snapshot, parts.tag);
}

// A neighbour of a path that leads nowhere, which may have been meant.
std::string near_path(const std::string& word) {
  const fs::path path =
      fs::path(word).has_filename() ? fs::path(word) : fs::path(word).parent_path();
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (it->is_directory(ignored) || is_gguf_name(name) || name.ends_with(".safetensors"))
      names.push_back(name);
    if (names.size() >= 10'000) break;
  }
  const std::string found = closest(path.filename().string(), names);
  if (found.empty()) return "";
  return path.has_parent_path() ? (parent / found).string() : found;
}

std::string near_name(const NamePlaces& places, const std::string& word) {
  if (places.hub_cache.empty()) return "";
  std::vector<std::string> names = hub_cache_names(places.hub_cache), low;
  const std::string name = in_lower_case(take_apart(word).name);
  for (const std::string& each : names) {
    low.push_back(in_lower_case(each));
    low.push_back(in_lower_case(last_part(each)));
  }
  const std::string found = closest(name, low);
  if (found.empty()) return "";
  return names[static_cast<std::size_t>(std::find(low.begin(), low.end(), found) - low.begin()) /
               2];
}

}  // namespace

bool begins_like_path(std::string_view text) {
  for (const std::string_view start : {"/", "./", "../", "~/"})
    if (text.starts_with(start)) return true;
  return text == "." || text == ".." || text == "~";
}

std::optional<std::string> find_by_name(const NamePlaces& places, const std::string& word) {
  if (places.models) {
    const std::vector<CatalogEntry> models = list_models(*places.models);
    try {
      return find_model(models, word).path;
    } catch (const Error& error) {
      if (error.code() != Errc::NotFound) throw;
    }
  }
  if (places.hub_cache.empty()) return std::nullopt;
  return find_in_cache(places.hub_cache, word);
}

void refuse_name(const NamePlaces& places, const std::string& word) {
  constexpr const char* kLookedFor =
      "{}: no such model: there is no directory and no .safetensors or .gguf file of that name";
  std::string text = fmt::format(kLookedFor, word);
  std::string near = near_path(word);
  const bool is_path = begins_like_path(word);
  if (!is_path) {
    if (places.models) {
      const std::vector<CatalogEntry> models = list_models(*places.models);
      if (near.empty()) near = near_name(places, word);
      try {
        find_model(models, word);
      } catch (const Error& error) {  // says which there are
        if (error.code() != Errc::NotFound) throw;
        text = error.what();
      }
    } else {
      text += ", and no --models DIR to look for it by name";
      if (near.empty()) near = near_name(places, word);
    }
  }
  if (!near.empty() && text.find("did you mean") == std::string::npos)
    text += fmt::format("; did you mean {}?", near);
  const HubWord parts = take_apart(word);
  if (word.find("://") != std::string::npos)
    text += fmt::format("; moeflux pull {} fetches it", word);
  else if (!is_path && is_hub_path(parts.name))
    text += fmt::format("; if it is on the hub, moeflux pull {} fetches it", word);
  fail(Errc::NotFound, "{}", text);
}

}  // namespace moeflux::cli
