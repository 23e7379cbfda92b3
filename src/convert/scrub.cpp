#include "convert/scrub.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include <fcntl.h>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kChunkBytes = 8u << 20;

struct Task {
  Extent extent;
  const Record* record = nullptr;  // null: there is nothing to compare
};

std::vector<Task> make_tasks(const ModelSource& source) {
  std::vector<Task> tasks;
  if (!source.records().empty()) {
    for (const Record& record : source.records()) tasks.push_back({record.extent, &record});
    return tasks;
  }
  for (int file = 0; file < source.n_files(); ++file) {
    const std::uint64_t size = source.file(file).size();
    for (std::uint64_t at = 0; at < size; at += kChunkBytes) {
      tasks.push_back({{file, at, std::min(kChunkBytes, size - at)}, nullptr});
    }
  }
  return tasks;
}

// The tensors that lie, at least in part, in the extent.
std::string tensors_in(const ModelSource& source, const Extent& extent) {
  std::string names;
  for (const auto& [name, info] : source.tensors()) {
    if (info.file != extent.file || info.bytes == 0) continue;
    const std::uint64_t last_slice =
        info.shape.empty() ? 0 : static_cast<std::uint64_t>(info.shape.front()) - 1;
    const std::uint64_t end = info.offset + last_slice * info.slice_stride + info.slice_bytes();
    if (info.offset >= extent.offset + extent.bytes || end <= extent.offset) continue;
    names += (names.empty() ? "" : ", ") + name;
    if (names.size() > 200) return names + ", ...";
  }
  return names.empty() ? "no tensor" : names;
}

// Asks the kernel to forget its copy, so that the disk is what is checked.
void drop_cache(const ModelSource& source, const Extent& extent) {
  for (const DiskPiece& piece : source.locate(extent)) {
    ::posix_fadvise(source.disk_file(piece.file).descriptor(), static_cast<off_t>(piece.offset),
                    static_cast<off_t>(piece.bytes), POSIX_FADV_DONTNEED);
  }
}

class Scrubber {
 public:
  Scrubber(const ModelSource& source, const ScrubOptions& options)
      : source_(source), options_(options), tasks_(make_tasks(source)), found_(tasks_.size()) {
    for (const Task& task : tasks_) total_ += task.extent.bytes;
  }

  ScrubReport run() {
    ThreadPool pool(std::max(1, options_.n_threads));
    std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.size()));
    pool.parallel_for(std::ssize(tasks_), 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(worker)];
      buffer.resize(kChunkBytes);
      for (std::int64_t i = begin; i < end; ++i) check(static_cast<std::size_t>(i), buffer);
    });
    ScrubReport report{.bytes = total_,
                       .n_checksums = source_.records().size() + source_.text_records().size(),
                       .damage = {}};
    for (const TextRecord& text : source_.text_records()) check_text(text, report);
    for (auto& damage : found_) {
      if (damage) report.damage.push_back(std::move(*damage));
    }
    return report;
  }

 private:
  void check(std::size_t index, std::span<std::byte> buffer) {
    const Task& task = tasks_[index];
    drop_cache(source_, task.extent);
    ChecksumStream sum;
    for (std::uint64_t at = 0; at < task.extent.bytes; at += buffer.size()) {
      const std::uint64_t bytes = std::min<std::uint64_t>(buffer.size(), task.extent.bytes - at);
      const Extent part{task.extent.file, task.extent.offset + at, bytes};
      try {
        source_.read(part, buffer.first(bytes));
      } catch (const Error& error) {
        const std::string name =
            task.record != nullptr ? task.record->name : tensors_in(source_, part);
        found_[index] = Damage{name, paths_of(task.extent), error.what()};
        advance(task.extent.bytes - at);
        return;
      }
      if (task.record != nullptr) sum.add(buffer.first(bytes));
      advance(bytes);
    }
    if (task.record != nullptr && sum.value() != task.record->checksum) {
      found_[index] =
          Damage{task.record->name, paths_of(task.extent),
                 fmt::format("the checksum is {} but must be {}", checksum_text(sum.value()),
                             checksum_text(task.record->checksum))};
    }
  }

  // People edit templates: what differs need not be the drive's fault.
  static void check_text(const TextRecord& text, ScrubReport& report) {
    try {
      const std::string content = read_text_file(text.path);
      if (content.size() != text.bytes || checksum(content) != text.checksum) {
        report.damage.push_back(
            {text.name, text.path, "is not as it was converted: damaged, or changed by somebody"});
      }
    } catch (const Error& error) {
      report.damage.push_back({text.name, text.path, error.what()});
    }
  }

  // A checksum does not tell which stripe is wrong.
  std::string paths_of(const Extent& extent) const {
    std::string paths;
    for (const DiskPiece& piece : source_.locate(extent)) {
      paths += (paths.empty() ? "" : ", ") + source_.disk_file(piece.file).path();
    }
    return paths;
  }

  void advance(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
  }

  const ModelSource& source_;
  const ScrubOptions& options_;
  std::vector<Task> tasks_;
  std::vector<std::optional<Damage>> found_;  // by task, so that threads do not meet
  std::uint64_t total_ = 0;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
};

}  // namespace

ScrubReport scrub(const ModelSource& source, const ScrubOptions& options) {
  return Scrubber(source, options).run();
}

}  // namespace moeflux
