#include "cli/terminal/stage_progress.h"

#include "cli/terminal/interrupt.h"

namespace moeflux::cli {

void StageProgress::update(const ConvertProgress& progress) {
  throw_if_interrupted();
  if (!bar_ || progress.stage != stage_) {
    stage_ = progress.stage;
    bar_.reset();  // the old one is removed before the new one appears
    const bool writing = stage_ == ConvertProgress::Stage::Writing;
    bar_ = std::make_unique<TransferProgress>(writing ? "writing" : "verifying", general_);
  }
  bar_->update(progress.bytes_done, progress.bytes_total);
}

}  // namespace moeflux::cli
