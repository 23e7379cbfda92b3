// Writes a container (docs/FORMAT.md): everything it will hold is declared first, then tensors and
// records come in any order and from any thread, then finish() makes it a model. Until that moment
// the directory does not open. A writer that is killed is followed by one with the same directory,
// spec and identity, which finds out what is done and goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/container_spec.h"
#include "convert/drives.h"
#include "convert/output_file.h"
#include "convert/progress_log.h"
#include "convert/scrub.h"
#include "source/model_source.h"

namespace moeflux {

struct WriterOptions {
  // Names what is being written: source and options. Another identity than that of the unfinished
  // container in the directory is refused.
  std::string identity;
  bool start_over = false;  // removes the container, finished or not, that is there
  // How many bytes may have to be written again after a kill.
  std::uint64_t checkpoint_bytes = 256u << 20;
  FreeBytes free = free_bytes;
};

class ContainerWriter {
 public:
  // Creates the directories, checks the space, reserves it. Throws Error when the directory holds
  // anything that is not this container under construction, or when another writer is at work in
  // it.
  ContainerWriter(std::string directory, const ContainerSpec& spec, WriterOptions options);
  ~ContainerWriter();

  const ContainerManifest& layout() const { return manifest_; }

  // What an earlier writer completed.
  bool has_tensor(std::size_t index) const;
  bool has_record(std::size_t bank, std::int64_t expert) const;
  std::uint64_t resumed_bytes() const { return resumed_bytes_; }
  std::string record_note(std::size_t bank, std::int64_t expert) const;

  // Calls fill(offset, out) for consecutive parts of the tensor.
  using Fill = std::function<void(std::uint64_t offset, std::span<std::byte> out)>;
  void write_tensor(std::size_t index, const Fill& fill);
  // A whole record: planes at their offsets in layout(), zeros between.
  void write_record(std::size_t bank, std::int64_t expert, std::span<const std::byte> record,
                    const std::string& note = {});
  // config.json and other small files beside the weights.
  void write_text(const std::string& name, std::string_view content);

  // Everything must be written. Syncs, reads all of it back from the disk and compares checksums,
  // lets `accept` look at the container as a reader sees it (and throw), then publishes it.
  void finish(const ScrubOptions& verify, const std::function<void(const ModelSource&)>& accept);

 private:
  std::set<std::string> places_of_old() const;
  void start_over();
  void prepare_directories(const WriterOptions& options);
  void resume(const FoundProgress& found);
  void check_space(bool resuming) const;
  void sync_directories() const;
  // These two with mutex_ held.
  void complete(DonePiece piece, std::uint64_t bytes, std::size_t file);
  void checkpoint();
  std::string path(std::string_view name) const;

  std::string directory_;
  NewDirectories new_directories_;
  std::optional<DirectoryLock> lock_;
  ContainerManifest manifest_;
  WriterOptions options_;
  std::vector<std::vector<OutputFile>> files_;  // by file of the manifest, by stripe
  std::optional<ProgressLog> log_;
  bool published_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<bool> tensors_done_;
  std::vector<bool> records_done_;        // in the order of checksums.bin
  std::vector<std::uint64_t> checksums_;  // of the records
  std::vector<std::string> notes_;        // of the records
  std::vector<DonePiece> pending_;        // written, not yet known to be on the disk
  std::set<std::size_t> dirty_;           // files of the manifest
  std::uint64_t pending_bytes_ = 0;
  std::uint64_t resumed_bytes_ = 0;
};

// The first line of the directory's convert.progress; nothing when there is none.
std::optional<Json> unfinished_header(const std::string& directory);

}  // namespace moeflux
