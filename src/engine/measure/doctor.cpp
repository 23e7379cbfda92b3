#include "engine/measure/doctor.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include <sys/stat.h>

#include "base/error.h"
#include "engine/measure/storage.h"
#include "families/family.h"
#include "io/uring_reader.h"
#include "source/gguf.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::array kDepths = {1, 2, 4, 8, 16, 32};
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Effort {
  double disk_seconds;  // per reader and depth
  double memory_seconds;
  std::uint64_t test_file_bytes;
  double write_seconds;
};
constexpr Effort kThorough = {
    .disk_seconds = 0.5, .memory_seconds = 0.3, .test_file_bytes = 1024 * kMiB, .write_seconds = 5};
constexpr Effort kQuick = {
    .disk_seconds = 0.1, .memory_seconds = 0.05, .test_file_bytes = 128 * kMiB, .write_seconds = 1};

std::string last_part(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  const fs::path chosen = error ? fs::path(path) : real;
  return gguf_model_name(
      (chosen.has_filename() ? chosen : chosen.parent_path()).filename().string());
}

// Messages name files with their directories, which are nobody's business.
std::string without_directories(std::string message, const std::string& path) {
  std::error_code error;
  for (std::string directory : {fs::canonical(path, error).string(), path}) {
    while (!directory.empty() && directory.back() == '/') directory.pop_back();
    for (std::size_t at = 0; directory.size() > 1;) {
      at = message.find(directory, at);
      if (at == std::string::npos) break;
      message.replace(at, directory.size(), last_part(path));
      at += last_part(path).size();
    }
  }
  return message;
}

// Whether a path that no model can be opened from was meant to be one.
bool looks_like_model(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return true;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    const std::string end = entry.path().extension();
    if (name == "config.json" || name == "moeflux.json" || name.rfind("model_weights.", 0) == 0 ||
        end == ".safetensors" || end == ".gguf") {
      return true;
    }
  }
  return false;
}

// One description per drive.
std::vector<StorageDescription> describe_drives(const std::vector<std::string>& files) {
  std::vector<StorageDescription> found;
  std::set<dev_t> seen;
  for (const std::string& file : files) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 || !seen.insert(info.st_dev).second) continue;
    found.push_back(describe_storage(file));
  }
  return found;
}

// Announces steps to whoever waits for them.
class Steps {
 public:
  Steps(const DoctorOptions& options, int n_steps) : options_(options), n_steps_(n_steps) {}
  void next(const std::string& what) {
    if (options_.progress) options_.progress(std::min(done_++, n_steps_), n_steps_, what);
  }
  void same(const std::string& what) {
    if (options_.progress) options_.progress(std::min(done_, n_steps_), n_steps_, what);
  }

 private:
  const DoctorOptions& options_;
  int n_steps_;
  int done_ = 0;
};

void measure_files(const std::vector<std::string>& files, const Effort& effort, Steps& steps,
                   DoctorReport& report) {
  std::uint64_t largest = 0;
  for (const std::string& file : files) largest = std::max(largest, File(file).size());
  report.record_bytes =
      std::clamp<std::uint64_t>(report.record_bytes, 1, std::max<std::uint64_t>(largest, 1));
  std::vector<ReaderKind> readers = {ReaderKind::Pool};
  if (report.uring == UringStatus::Used) readers.insert(readers.begin(), ReaderKind::Uring);
  for (const ReaderKind reader : readers) {
    for (const int depth : kDepths) {
      // Large experts on a small machine: measuring must not be what fills its memory.
      const std::uint64_t memory = report.record_bytes * static_cast<std::uint64_t>(depth);
      if (depth > 1 && memory > usable_memory(report.machine.memory) / 8) break;
      steps.next(fmt::format("{} in flight", depth));
      ReaderOptions options;
      options.kind = reader;
      options.queue_depth = options.threads = depth;
      MeasureOptions measure;
      measure.record_bytes = report.record_bytes;
      measure.records_in_flight = depth;
      measure.max_seconds = effort.disk_seconds;
      report.disk.push_back({reader, depth, measure_reader(files, options, measure)});
    }
  }
}

void measure_disk(const DoctorOptions& options, const Effort& effort, Steps& steps,
                  DoctorReport& report) {
  try {
    if (report.model && !report.model->files.empty()) {
      report.storage = describe_drives(report.model->files);
      measure_files(report.model->files, effort, steps, report);
      return;
    }
    std::error_code error;
    const std::string directory = fs::is_directory(options.path, error)
                                      ? options.path
                                      : fs::path(options.path).parent_path().string();
    StorageDescription storage = describe_storage(directory);
    report.storage = {storage};
    TestFile::Options file;
    const std::uint64_t least = 4 * report.record_bytes;
    file.bytes = std::clamp<std::uint64_t>(storage.free_bytes / 4, least,
                                           std::max(effort.test_file_bytes, least));
    if (storage.free_bytes < 2 * least) {
      fail(Errc::Io, "only {} MiB are free, too little for a test file of {} MiB",
           storage.free_bytes / kMiB, least / kMiB);
    }
    file.max_seconds = effort.write_seconds;
    file.progress = [&](std::uint64_t done) {
      steps.same(fmt::format("test file, {} MiB", done / kMiB));
    };
    const TestFile test(directory, file);
    report.test_file_bytes = test.bytes();
    report.storage[0].alignment = describe_storage(test.path()).alignment;
    measure_files({test.path()}, effort, steps, report);
  } catch (const Error& error) {
    if (error.code() == Errc::Cancelled) throw;
    report.disk_error = without_directories(error.what(), options.path);
  }
}

void measure_memories(const Effort& effort, Steps& steps, DoctorReport& report) {
  const std::uint64_t usable = usable_memory(report.machine.memory);
  for (const int n : thread_counts(report.machine.cpu.n_usable)) {
    steps.next(fmt::format("memory, {} threads", n));
    MemoryMeasureOptions options;
    options.seconds = effort.memory_seconds;
    options.bytes = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(n) * 64 * kMiB, 512 * kMiB,
                                              4096 * kMiB);
    options.bytes = std::min<std::uint64_t>(options.bytes, usable / 8);
    try {
      report.memory.push_back(measure_memory(n, options));
    } catch (const Error&) {
      return;  // no threads or memory for more: what was measured stands
    }
  }
}

}  // namespace

std::string_view severity_name(Severity severity) {
  constexpr std::string_view kNames[] = {"note", "warning", "error"};
  return kNames[static_cast<std::size_t>(severity)];
}

const DiskSpeed* DoctorReport::best_disk() const {
  const auto best = std::max_element(disk.begin(), disk.end(), [](const auto& a, const auto& b) {
    return a.speed.bytes_per_second() < b.speed.bytes_per_second();
  });
  return best == disk.end() ? nullptr : &*best;
}

ModelOnDisk inspect_model(const std::string& path) {
  const auto source = open_source(path);
  const ModelDescription model = describe_model(*source);
  ModelOnDisk found;
  found.name = last_part(path);
  found.family = model.family->name;
  found.layout = layout_name(source->layout());
  std::set<int> files;
  for (const ExpertBank& bank : model.index.experts) {
    for (int e = 0; e < bank.gate.count(); ++e) {
      std::uint64_t bytes = 0;
      for (const StoredExpertBank* matrices : {&bank.gate, &bank.up, &bank.down}) {
        const StoredMatrix matrix = matrices->at(e);
        bytes += matrix.bytes();
        for (const DiskPiece& piece : source->locate(matrix.data)) files.insert(piece.file);
        found.expert_is_one_record = source->find_record(matrix.data) != nullptr;
      }
      found.expert_bytes = std::max(found.expert_bytes, bytes);
    }
  }
  for (const int file : files) found.files.push_back(source->disk_file(file).path());
  return found;
}

DoctorReport examine(const DoctorOptions& options) {
  std::error_code error;
  if (!fs::exists(options.path, error)) {
    fail(Errc::NotFound, "{}: no such model or directory", options.path);
  }
  const Effort& effort = options.quick ? kQuick : kThorough;
  DoctorReport report;
  report.machine = describe_machine();
  {
    const UringSetup setup = open_uring(1);
    report.uring = setup.status;
    report.uring_error = setup.error;
  }
  report.record_bytes = options.record_bytes;
  if (looks_like_model(options.path)) {
    try {
      report.model = inspect_model(options.path);
      if (report.model->expert_bytes > 0) report.record_bytes = report.model->expert_bytes;
    } catch (const Error& failure) {
      report.model_error = without_directories(failure.what(), options.path);
    }
  }
  const int n_disk = static_cast<int>(kDepths.size()) * (report.uring == UringStatus::Used ? 2 : 1);
  const int n_memory = static_cast<int>(thread_counts(report.machine.cpu.n_usable).size());
  Steps steps(options, n_disk + n_memory);
  measure_memories(effort, steps, report);
  measure_disk(options, effort, steps, report);
  report.findings = find_problems(report);
  return report;
}

}  // namespace moeflux
