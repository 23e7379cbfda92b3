// What synthesize() shares between its formats, and a writer for each. The bytes of a tensor come
// from the plan alone, so that they are the same in all.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "convert/model_files.h"
#include "convert/synth/synth.h"
#include "convert/write_progress.h"

namespace moeflux {

struct SynthJob {
  const SynthPlan& plan;
  const SynthOptions& options;
  std::string directory;
  std::string identity;  // of shape and statistics
  std::vector<TextFile> text;
  int n_threads = 1;
};

// A dense tensor: one plane of what it belongs to.
class SynthDense {
 public:
  SynthDense(const std::variant<SynthMatrix, SynthVector>& of, SynthPlane plane,
             std::uint64_t seed);
  const SynthPlane& plane() const { return plane_; }
  int bits() const;  // of its codes; 0 when it is not quantized
  void fill(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  const std::variant<SynthMatrix, SynthVector>* of_;
  SynthPlane plane_;
  RandomStream random_;
};
std::vector<SynthDense> dense_planes(const SynthPlan& plan, std::uint64_t seed);

// A plane that every expert of a bank has; its shape is that of one expert's.
class SynthExpertPlane {
 public:
  SynthExpertPlane(const SynthMatrix& of, SynthPlane plane, std::uint64_t seed)
      : of_(&of), plane_(std::move(plane)), random_(seed, of.module) {}
  const SynthPlane& plane() const { return plane_; }
  void fill(int expert, std::span<std::byte> out) const {
    fill_plane(*of_, plane_, random_.fork(static_cast<std::uint64_t>(expert)), 0, out);
  }

 private:
  const SynthMatrix* of_;
  SynthPlane plane_;
  RandomStream random_;
};
// Weight, scales and biases of gate, of up and of down.
std::vector<SynthExpertPlane> expert_planes(const SynthBank& bank, std::uint64_t seed);

SynthReport write_synth_container(const SynthJob& job);
SynthReport write_synth_mlx(const SynthJob& job);
SynthReport write_synth_flash_moe(const SynthJob& job);

}  // namespace moeflux
