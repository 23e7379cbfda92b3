// What every writer of a model needs: files of known size, directories that only one process writes
// into, and progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// A file of known size that is written in pieces, in any order, by any thread. Its space is
// reserved when it is created where the filesystem can do that, so that a full disk shows before
// the work and not after it. Written pages are sent to the disk at once and can be dropped from the
// page cache: a conversion must not push everything else out of memory.
class OutputFile {
 public:
  enum class Mode { Fresh, Resume };  // Resume keeps what is there
  OutputFile(std::string path, std::uint64_t bytes, Mode mode);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  const std::string& path() const { return path_; }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  void sync() const;        // all that was written is on the disk after this
  void drop_cache() const;  // what is on the disk leaves the page cache

 private:
  std::string path_;
  int fd_ = -1;
};

// Replaces a small file as a whole: a reader sees the old one or the new one. The new one comes
// from a file of the same name with this behind it, which a kill may leave.
inline constexpr std::string_view kPartSuffix = ".part";
void write_whole_file(const std::string& path, std::string_view content);

// Makes created, renamed and removed names of a directory last.
void sync_directory(const std::string& directory);

// Directories that are created to be written into. Those that are empty when the object goes were
// made for nothing, as by a refused conversion, and go too.
class NewDirectories {
 public:
  NewDirectories() = default;
  ~NewDirectories();
  NewDirectories(const NewDirectories&) = delete;
  NewDirectories& operator=(const NewDirectories&) = delete;

  // With those above it that are missing; makes their names last.
  void create(const std::string& directory);

 private:
  std::vector<std::string> created_;  // those above before those below
};

// Keeps two processes from writing into one directory at the same time. The lock goes with the
// process, however it ends, and leaves nothing behind.
class DirectoryLock {
 public:
  // Throws Error(BadInput) when another one holds it. A filesystem without locks grants all.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

// How far a conversion or a synthesis has come.
struct ConvertProgress {
  enum class Stage { Writing, Verifying };
  Stage stage = Stage::Writing;
  std::uint64_t bytes_done = 0;  // what an earlier run did counts
  std::uint64_t bytes_total = 0;
};
using ConvertProgressCall = std::function<void(const ConvertProgress&)>;

// Counts the bytes that several threads write, and tells the caller, one thread at a time.
class WriteMeter {
 public:
  WriteMeter(const ConvertProgressCall& tell, std::uint64_t done, std::uint64_t total)
      : tell_(tell), done_(done), total_(total) {
    add(0);
  }
  void add(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (tell_) tell_({ConvertProgress::Stage::Writing, done_, total_});
  }

 private:
  const ConvertProgressCall& tell_;
  std::mutex mutex_;
  std::uint64_t done_, total_;
};

}  // namespace moeflux
