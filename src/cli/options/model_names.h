// What a word may name: a path, a model of --models, or one of the hub's cache. The same for every
// command that takes a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace moeflux::cli {

struct NamePlaces {
  std::optional<std::string> models;  // --models
  std::string hub_cache;              // "" where there is none
};

// The path to open, or none. `models`, then the hub's cache: "org/name", "org/name@revision",
// "org/name:Q4_K_M", "models--org--name", or the last part alone where only one has it. Throws
// Error for what names several.
std::optional<std::string> find_by_name(const NamePlaces& places, const std::string& word);

// Why nothing was found, with the nearest name, and how to fetch what looks like one of the hub.
// Throws Error(NotFound).
[[noreturn]] void refuse_name(const NamePlaces& places, const std::string& word);

// "~", "./x", "/x", ...: nothing but a path.
bool begins_like_path(std::string_view text);

}  // namespace moeflux::cli
