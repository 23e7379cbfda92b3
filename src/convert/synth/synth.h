// Writes a model of a released shape with random weights straight to disk: for measurements that
// need the size, the file layout and the routing of a large model, but not its answers. Equal
// options give equal bytes, and the same weights in every format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "convert/convert.h"
#include "convert/drives.h"
#include "convert/synth/synth_plan.h"
#include "convert/synth/synth_shape.h"

namespace moeflux {

enum class SynthFormat { Container, Mlx, FlashMoe };

struct SynthOptions {
  SynthFormat format = SynthFormat::Container;
  SynthStatistics statistics;
  bool force = false;  // replace the model that is in the directory
  int n_threads = 0;   // 0: one per core, at most 8
  std::string made_by = "moeflux";
  // Called by one thread at a time; may throw, which ends the work.
  ConvertProgressCall progress;
  FreeBytes free = free_bytes;
};

struct SynthReport {
  std::uint64_t bytes = 0;  // of all weights
  std::uint64_t resumed_bytes = 0;
  std::size_t n_tensors = 0;  // dense ones
  std::uint64_t n_experts = 0;
  std::string fingerprint{};  // of a container
  double write_seconds = 0;   // until everything was on the disk
  double verify_seconds = 0;  // a container is read back
};

SynthReport synthesize(const SynthShape& shape, const std::string& directory,
                       const SynthOptions& options);

// The files of SynthFormat::Mlx with holes for the weights: enough to open it, not to run it. The
// directory must be empty.
void write_synth_outline(const SynthShape& shape, const std::string& directory);

}  // namespace moeflux
