// A bar for each stage of writing a model.
#pragma once

#include <memory>

#include "cli/terminal/transfer_progress.h"
#include "convert/write_progress.h"

namespace moeflux::cli {

class StageProgress {
 public:
  explicit StageProgress(const GeneralOptions& general) : general_(general) {}

  // Throws when the user has interrupted.
  void update(const ConvertProgress& progress);

 private:
  const GeneralOptions& general_;
  ConvertProgress::Stage stage_ = ConvertProgress::Stage::Writing;
  std::unique_ptr<TransferProgress> bar_;
};

}  // namespace moeflux::cli
