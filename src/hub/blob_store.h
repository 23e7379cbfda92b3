// The hub's cache as it is written: where a model's files go, and how they appear. A snapshot shows
// nothing but links to whole blobs, and a revision names a snapshot only when all of it is there.
#pragma once

#include <string>
#include <vector>

#include "hub/repository.h"
#include "hub/transfer.h"

namespace moeflux {

class BlobStore {
 public:
  // Makes the folders of the model. Throws Error(Io).
  BlobStore(std::string cache, const std::string& name);

  bool has(const HubFile& file) const;  // whole
  TransferItem item(const HubFile& file, const Url& url) const;
  std::uint64_t begun_bytes(const HubFile& file) const;  // that the drive has given already

  // Links the files, which must be there, and returns the path of the snapshot.
  std::string link(const std::string& commit, const std::vector<HubFile>& files) const;
  void set_revision(const std::string& revision, const std::string& commit) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string blob(const HubFile& file) const { return folder_ + "/blobs/" + file.blob; }

  std::string folder_, locks_;
};

}  // namespace moeflux
