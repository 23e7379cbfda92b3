// The files of a synthetic model in a layout other than a container's: made large and sequential by
// several threads, with little memory, and gone from the page cache when they are done. The last
// file written is the one without which nothing opens, so that what is killed half-way is no model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/container_spec.h"
#include "convert/directory_lock.h"
#include "convert/output_file.h"
#include "convert/synth/synth_writers.h"
#include "convert/write_progress.h"

namespace moeflux {

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
