// Removing a model from a directory of models, with the care that deserves: what will go is known
// and can be shown before anything goes.
//
// A model that is a link loses the link only. Nothing is removed through a link, and nothing
// outside of the model's directory but the stripes of a container, and those only where name and
// size are what the manifest says: a manifest may come from a stranger.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model_catalog.h"

namespace moeflux::cli {

struct RemovalPlan {
  std::string name, path;
  std::string models;                // the directory that holds it
  bool is_link = false;              // only the link goes
  std::uint64_t bytes = 0;           // that are freed, stripes included
  std::vector<std::string> stripes;  // files on other drives
  std::vector<std::string> kept;     // files the manifest names that are left: why
};

// Throws Error(BadInput) when the model is not inside of `models`.
RemovalPlan plan_removal(const std::string& models, const CatalogEntry& model);

// Throws Error(BadInput) when a conversion writes there, Error(Io) when something cannot be
// removed. What says that this is a model goes last: one that was removed by half can be removed
// again.
void remove_model(const RemovalPlan& plan);

}  // namespace moeflux::cli
