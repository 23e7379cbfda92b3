// Looks at everything that decides how well models run here: the processor, the memory and who
// limits it, the kernel, the drive; measures what can be measured; and says what could be better.
// The report is made to be pasted into a bug report: it names no host, no user and no path beyond
// the last part of the model's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/machine.h"
#include "engine/measure/measure_speed.h"
#include "engine/measure/storage.h"
#include "io/measure_reader.h"

namespace moeflux {

enum class Severity { Note, Warning, Error };
std::string_view severity_name(Severity severity);  // "note", "warning", "error"

struct Finding {
  Severity severity = Severity::Note;
  std::string id;      // for programs: "io_uring_forbidden"
  std::string what;    // one sentence
  std::string advice;  // what to do about it; empty: nothing
};

// A model as its experts lie on the drive.
struct ModelOnDisk {
  std::string name;  // the last part of its path
  std::string family, layout;
  std::uint64_t expert_bytes = 0;     // the largest routed expert; 0: it has none
  bool expert_is_one_record = false;  // as opposed to several places of the files
  std::vector<std::string> files;     // that hold experts; for reading, not for reports
};

struct DiskSpeed {
  ReaderKind reader = ReaderKind::Pool;
  int depth = 0;  // records in flight
  ReadSpeed speed;
};

struct DoctorOptions {
  std::string path = ".";                           // a model, or a directory to measure in
  bool quick = false;                               // a few seconds in all
  std::size_t record_bytes = std::size_t{2} << 20;  // unless a model says it
  // Called before each step; may throw to stop.
  std::function<void(int step, int n_steps, const std::string& what)> progress{};
};

struct DoctorReport {
  MachineDescription machine;
  UringStatus uring = UringStatus::Failed;
  int uring_error = 0;
  std::optional<ModelOnDisk> model;
  std::string model_error;                  // why what looks like a model is none
  std::vector<StorageDescription> storage;  // one per drive with files that were measured
  std::uint64_t record_bytes = 0;
  std::uint64_t test_file_bytes = 0;  // 0: the model's own files were read
  std::vector<DiskSpeed> disk;
  std::string disk_error;  // why nothing was measured
  std::vector<MemorySpeed> memory;
  std::vector<Finding> findings;

  const DiskSpeed* best_disk() const;  // null when nothing was measured
};

// Throws Error(NotFound) when the path does not exist, and what `progress` throws.
DoctorReport examine(const DoctorOptions& options);

// The part of examine() that judges: depends on the report alone.
std::vector<Finding> find_problems(const DoctorReport& report);

// Opens a model and finds the files and sizes of its experts. Throws Error.
ModelOnDisk inspect_model(const std::string& path);

}  // namespace moeflux
