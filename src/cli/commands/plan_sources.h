// Models that `plan` can look at before they are on the drive: one of the hub, by its headers, and
// one of a shape, by what synth would write. Both become files with holes for the weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/options/general_options.h"
#include "cli/options/model_options.h"

namespace moeflux::cli {

class TemporaryDirectory;

struct PlannedModel {
  std::string path;  // to open
  std::string name;  // to show
  bool on_drive = true;
  std::string drive;  // a directory of the drive that it would lie on, where it is not there yet
  std::shared_ptr<TemporaryDirectory> directory = {};
};

PlannedModel shape_to_plan(const std::string& shape, const ModelOptions& options);

// A model of the hub, where `word` is the name of one. Fetches headers.
std::optional<PlannedModel> hub_model_to_plan(const std::string& word,
                                              const GeneralOptions& general);

}  // namespace moeflux::cli
