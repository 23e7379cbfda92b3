// Removing a model of the hub's cache: its folder, or of several GGUF files the ones of one model
// with the blobs that nothing else links to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model_catalog.h"

namespace moeflux::cli {

struct HubRemoval {
  std::string name, path;          // what goes, for the question
  std::string folder;              // models--org--name
  bool whole = false;              // all of it
  std::uint64_t bytes = 0;         // that are freed
  std::vector<std::string> files;  // links and blobs, where not all of it goes
};

// Whether a model of the catalogue lies in such a folder, and which. "": no.
std::string hub_folder_of(const std::string& model_path);

HubRemoval plan_hub_removal(const std::string& folder, const CatalogEntry& model);
// Throws Error(Io).
void remove_hub_model(const HubRemoval& removal);

}  // namespace moeflux::cli
