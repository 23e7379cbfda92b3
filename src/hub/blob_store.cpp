#include "hub/blob_store.h"

#include <filesystem>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "hub/part_file.h"
#include "source/hub_cache.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail(Errc::Io, "{}: cannot be made: {}; HF_HUB_CACHE names another place for the cache",
         path.string(), error.message());
  }
}

// Below `root`, part by part: a link in the way would lead out of the cache.
void make_inside(const fs::path& root, const fs::path& below) {
  fs::path path = root;
  for (const fs::path& part : below) {
    path /= part;
    if (::mkdir(path.c_str(), 0755) == 0) continue;
    const int error = errno;
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
    fail(Errc::Io, "{}: cannot be made: {}", path.string(),
         error == EEXIST ? "something that is no directory is in its place"
                         : std::generic_category().message(error));
  }
}

// Replaces what is there, at once.
void link_to(const std::string& target, const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error)) && fs::read_symlink(path, error) == target)
    return;
  const std::string fresh = path.string() + ".link";
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
    const int why = errno;
    ::unlink(fresh.c_str());
    fail(Errc::Io, "{}: cannot be linked: {}; the cache needs a file system with links",
         path.string(), std::generic_category().message(why));
  }
}

}  // namespace

BlobStore::BlobStore(std::string cache, const std::string& name)
    : folder_(cache + "/" + hub_folder(name)), locks_(cache + "/.locks/" + hub_folder(name)) {
  for (const char* part : {"/blobs", "/snapshots", "/refs"}) make_directories(folder_ + part);
  make_directories(locks_);
}

bool BlobStore::has(const HubFile& file) const {
  std::error_code error;
  return file_exists(blob(file)) && fs::file_size(blob(file), error) == file.size && !error;
}

TransferItem BlobStore::item(const HubFile& file, const Url& url) const {
  return {.label = file.path,
          .url = url,
          .size = file.size,
          .hash = file.hash,
          .digest = file.blob,
          .path = blob(file),
          .part = blob(file) + ".part",
          .lock = locks_ + "/" + file.blob + ".lock"};
}

std::uint64_t BlobStore::begun_bytes(const HubFile& file) const {
  return std::min(allocated_bytes(blob(file) + ".part"), file.size);
}

std::string BlobStore::link(const std::string& commit, const std::vector<HubFile>& files) const {
  const fs::path snapshots = folder_ + "/snapshots";
  const fs::path snapshot = snapshots / commit;
  make_inside(snapshots, commit);
  for (const HubFile& file : files) {
    const fs::path path = file.path;
    if (path.has_parent_path()) make_inside(snapshot, path.parent_path());
    std::string up = "../../";
    for (const char c : file.path)
      if (c == '/') up += "../";
    link_to(up + "blobs/" + file.blob, snapshot / path);
  }
  return snapshot.string();
}

void BlobStore::set_revision(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision)) return;
  const fs::path path = fs::path(revision);
  if (path.has_parent_path()) make_inside(folder_ + "/refs", path.parent_path());
  AtomicFile file(folder_ + "/refs/" + revision);
  file.write(commit);
  file.commit();
}

}  // namespace moeflux
