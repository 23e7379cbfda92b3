#include "convert/synth/synth_files.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/thread_pool.h"
#include "convert/output_file.h"
#include "source/checkpoint_files.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kWriteBytes = 4u << 20;
// Written before the disk is waited for.
constexpr std::uint64_t kSyncBytes = 512u << 20;
// All threads together hold this much.
constexpr std::uint64_t kMaxBufferBytes = 128u << 20;

struct Chunk {
  const SynthRegion* region = nullptr;
  std::uint64_t offset = 0;  // in the region
  std::uint64_t bytes = 0;
};

std::vector<Chunk> chunks_of(const SynthFile& file) {
  std::vector<Chunk> chunks;
  for (const SynthRegion& region : file.regions) {
    const std::uint64_t step = std::max<std::uint64_t>(1, kWriteBytes / region.unit) * region.unit;
    for (std::uint64_t at = 0; at < region.bytes; at += step) {
      chunks.push_back({&region, at, std::min(step, region.bytes - at)});
    }
  }
  return chunks;
}

void clear_directory(const std::string& directory, bool force,
                     const std::function<bool(std::string_view)>& is_ours) {
  std::vector<fs::path> ours;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) continue;
    const std::string name = fs::relative(entry.path(), directory).string();
    if (!force) {
      fail(Errc::BadInput,
           "{}: is not empty (it has {}); give an empty directory, or --force to write into it all "
           "the same",
           directory, name);
    }
    if (is_ours(name)) ours.push_back(entry.path());
  }
  for (const fs::path& path : ours) fs::remove(path);
}

}  // namespace

SynthRegion dense_region(const SynthDense& dense, std::uint64_t offset) {
  return {.offset = offset,
          .bytes = dense.plane().bytes,
          .unit = 8,
          .fill = [&dense](std::uint64_t at, std::span<std::byte> out) { dense.fill(at, out); }};
}

SynthFileWriter::SynthFileWriter(const SynthJob& job, const std::vector<SynthFile>& files,
                                 const std::function<bool(std::string_view)>& is_ours)
    : job_(job) {
  new_directories_.create(job.directory);
  lock_.emplace(job.directory);
  try {
    clear_directory(job.directory, job.options.force, is_ours);
  } catch (const fs::filesystem_error& error) {
    fail(Errc::Io, "{}: {}", job.directory, error.what());
  }
  std::vector<DataFile> sizes;
  for (const SynthFile& file : files) {
    new_directories_.create(fs::path(path(file.name)).parent_path().string());
    sizes.push_back({path(file.name), file.bytes});
  }
  check_disk_space(sizes, job.options.free);
}

void SynthFileWriter::write(const std::vector<SynthFile>& files) {
  std::uint64_t total = 0;
  for (const SynthFile& file : files) {
    for (const SynthRegion& region : file.regions) total += region.bytes;
  }
  WriteMeter meter(job_.options.progress, 0, total);
  std::set<std::string> directories;
  for (const SynthFile& file : files) {
    write_file(file, meter);
    directories.insert(fs::path(path(file.name)).parent_path().string());
  }
  for (const std::string& directory : directories) sync_directory(directory);
}

void SynthFileWriter::write_file(const SynthFile& file, WriteMeter& meter) const {
  const OutputFile out(path(file.name), file.bytes, OutputFile::Mode::Fresh);
  const std::vector<Chunk> chunks = chunks_of(file);
  std::uint64_t largest = 1;
  for (const Chunk& chunk : chunks) largest = std::max(largest, chunk.bytes);
  ThreadPool pool(std::clamp(static_cast<int>(kMaxBufferBytes / largest), 1, job_.n_threads));
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.size()));
  std::atomic<bool> failed = false;
  const auto write = [&](const Chunk& chunk, std::vector<std::byte>& buffer) {
    buffer.resize(chunk.bytes);
    chunk.region->fill(chunk.offset, buffer);
    out.write(chunk.region->offset + chunk.offset, buffer);
    meter.add(chunk.bytes);
  };
  for (std::size_t begin = 0; begin < chunks.size();) {
    std::size_t end = begin;
    for (std::uint64_t bytes = 0; end < chunks.size() && bytes < kSyncBytes; ++end) {
      bytes += chunks[end].bytes;
    }
    pool.parallel_for(static_cast<std::int64_t>(end - begin), 1,
                      [&](std::int64_t first, std::int64_t last, int worker) {
                        for (std::int64_t i = first; i < last && !failed; ++i) {
                          try {
                            write(chunks[begin + static_cast<std::size_t>(i)],
                                  buffers[static_cast<std::size_t>(worker)]);
                          } catch (...) {  // the other threads need not go on
                            failed = true;
                            throw;
                          }
                        }
                      });
    out.sync();
    out.drop_cache();
    begin = end;
  }
}

void SynthFileWriter::write_text(const std::string& name, std::string_view content) const {
  write_whole_file(path(name), content);
}

std::string SynthFileWriter::path(std::string_view name) const {
  return fmt::format("{}/{}", job_.directory, name);
}

}  // namespace moeflux
