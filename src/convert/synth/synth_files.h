// Writing a synthetic model: what the writers of its layouts share, and the files of a layout other
// than a container's. The bytes of a tensor come from the plan alone, so that they are the same in
// all layouts.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/container_spec.h"
#include "convert/model_files.h"
#include "convert/output_file.h"
#include "convert/synth/synth.h"

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
void write_synth_mlx_outline(const SynthJob& job);  // headers, and holes for the weights
SynthReport write_synth_flash_moe(const SynthJob& job);

// Consecutive bytes of a file that are made alike, in whole units but for the last.
struct SynthRegion {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;
  std::uint64_t unit = 8;
  std::function<void(std::uint64_t offset, std::span<std::byte> out)>
      fill;  // from the region's begin
};

struct SynthFile {
  std::string name;  // in the model's directory; may have a folder before it
  std::uint64_t bytes = 0;
  std::vector<SynthRegion> regions;  // what lies between them is zero
};

SynthRegion dense_region(const SynthDense& dense, std::uint64_t offset);

// Writes files large and sequential with several threads and little memory; they are gone from the
// page cache when they are done. The last file written is the one without which nothing opens, so
// that what is killed half-way is no model.
class SynthFileWriter {
 public:
  // Makes the directory. `is_ours` tells which files are removed before when --force is given;
  // without it the directory must be empty. Throws Error when there is no room.
  SynthFileWriter(const SynthJob& job, const std::vector<SynthFile>& files,
                  const std::function<bool(std::string_view)>& is_ours);

  // Everything is on the disk after this.
  void write(const std::vector<SynthFile>& files);
  void write_text(const std::string& name, std::string_view content) const;

 private:
  void write_file(const SynthFile& file, WriteMeter& meter) const;
  std::string path(std::string_view name) const;

  const SynthJob& job_;
  NewDirectories new_directories_;
  std::optional<DirectoryLock> lock_;
};

}  // namespace moeflux
