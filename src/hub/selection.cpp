#include "hub/selection.h"

#include <algorithm>
#include <set>

#include <fnmatch.h>

#include "base/error.h"
#include "base/memory_budget.h"
#include "source/checkpoint_files.h"
#include "source/gguf.h"

namespace moeflux {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash + 1));
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string pattern) {
    if (pattern.ends_with('/')) pattern += '*';
    return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
  });
}

// Beside weights: what config, tokenizer and template are read from.
bool is_small_part(std::string_view path) {
  const std::string_view name = base_name(path);
  if (path.find('/') != std::string_view::npos) return name.ends_with(".jinja");
  for (const std::string_view ending : {".json", ".jinja", ".model", ".tiktoken"})
    if (name.ends_with(ending)) return true;
  return name == "merges.txt" || name == "vocab.txt";
}

// Of every folder the models in GGUF files, by their first parts.
std::vector<std::string> gguf_paths(const HubListing& listing) {
  std::set<std::string> folders;
  for (const HubFile& file : listing.files)
    if (is_gguf_name(file.path)) folders.insert(folder_of(file.path));
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    std::vector<std::string> names;
    for (const HubFile& file : listing.files)
      if (folder_of(file.path) == folder) names.emplace_back(base_name(file.path));
    for (const std::string& name : gguf_models(names)) paths.push_back(folder + name);
  }
  return paths;
}

std::vector<HubFile> with_parts(const HubListing& listing, const std::string& path) {
  const std::string folder = folder_of(path);
  std::vector<HubFile> files;
  for (const std::string& part : shard_set(std::string(base_name(path)))) {
    const auto found =
        std::find_if(listing.files.begin(), listing.files.end(),
                     [&](const HubFile& file) { return file.path == folder + part; });
    if (found == listing.files.end())
      fail(Errc::NotFound, "{}: {} has no file {}", listing.name, listing.revision, folder + part);
    files.push_back(*found);
  }
  return files;
}

std::string list_of(const HubListing& listing, const std::vector<std::string>& paths) {
  constexpr std::size_t kMost = 40;
  std::string text;
  for (std::size_t i = 0; i < std::min(paths.size(), kMost); ++i) {
    std::uint64_t bytes = 0;
    for (const HubFile& file : with_parts(listing, paths[i])) bytes += file.size;
    text += fmt::format("\n  {:>10}  {}", format_bytes(bytes), paths[i]);
  }
  if (paths.size() > kMost) text += fmt::format("\n  and {} more", paths.size() - kMost);
  return text;
}

std::vector<HubFile> choose_gguf(const HubListing& listing, const FileChoice& choice) {
  const std::vector<std::string> paths = gguf_paths(listing);
  if (!choice.tag.empty()) {
    const std::string found = find_gguf_by_tag(paths, choice.tag);
    if (found.empty())
      fail(Errc::NotFound, "{}: no GGUF file of {}; there are:{}", listing.name, choice.tag,
           list_of(listing, paths));
    return with_parts(listing, found);
  }
  if (paths.size() == 1) return with_parts(listing, paths.front());
  fail(Errc::BadInput,
       "{} has several models; name one as {}:QUANTIZATION, or give --include PATTERN; there "
       "are:{}",
       listing.name, listing.name, list_of(listing, paths));
}

std::vector<HubFile> choose_safetensors(const HubListing& listing) {
  const bool has_usual =
      std::any_of(listing.files.begin(), listing.files.end(), [](const HubFile& file) {
        return file.path.starts_with("model") && file.path.ends_with(".safetensors") &&
               file.path.find('/') == std::string::npos;
      });
  std::vector<HubFile> files;
  for (const HubFile& file : listing.files) {
    const bool is_root = file.path.find('/') == std::string::npos;
    const bool is_weight = is_root && file.path.ends_with(".safetensors") &&
                           (!has_usual || file.path.starts_with("model"));
    if (is_weight || is_small_part(file.path)) files.push_back(file);
  }
  return files;
}

}  // namespace

std::vector<HubFile> choose_files(const HubListing& listing, const FileChoice& choice) {
  std::vector<HubFile> files;
  const auto any = [&](auto is) {
    return std::any_of(listing.files.begin(), listing.files.end(), is);
  };
  if (!choice.file.empty()) {
    files = with_parts(listing, choice.file);
  } else if (!choice.include.empty()) {
    for (const HubFile& file : listing.files)
      if (matches_any(choice.include, file.path)) files.push_back(file);
  } else if (!choice.tag.empty()) {
    files = choose_gguf(listing, choice);
  } else if (any([](const HubFile& f) { return f.path == "moeflux.json"; })) {
    files = listing.files;
  } else if (any([](const HubFile& f) {
               return f.path.ends_with(".safetensors") && f.path.find('/') == std::string::npos;
             })) {
    files = choose_safetensors(listing);
  } else if (any([](const HubFile& f) { return is_gguf_name(f.path); })) {
    files = choose_gguf(listing, choice);
  } else if (any([](const HubFile& f) { return f.path == "model_weights.json"; }) ||
             any([](const HubFile& f) { return f.path == "model_weights.bin"; })) {
    files = listing.files;
  } else {
    const bool has_pickle = any([](const HubFile& f) {
      return f.path.ends_with(".bin") || f.path.ends_with(".pt") || f.path.ends_with(".pth");
    });
    fail(Errc::NotFound,
         "{}: has no safetensors and no GGUF files{}; --include PATTERN fetches "
         "others",
         listing.name,
         has_pickle ? ", only PyTorch files, which are not read because they can run code" : "");
  }
  std::erase_if(files, [&](const HubFile& file) { return matches_any(choice.exclude, file.path); });
  if (files.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(listing.files.size(), 40); ++i)
      names += "\n  " + listing.files[i].path;
    fail(Errc::NotFound, "{}: no file is left by --include and --exclude; there are:{}",
         listing.name, names);
  }
  return files;
}

}  // namespace moeflux
