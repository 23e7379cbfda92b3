// A model on the hub: what a user calls it, and the files it has at a commit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/client.h"

namespace moeflux {

// ORG/NAME, with @REVISION, with :TAG for a quantization of GGUF; or its address on the hub, down
// to a file.
struct HubReference {
  std::string name = {};  // "ORG/NAME"
  std::string revision = "main";
  std::string tag = {};   // "Q4_K_M"; "" without one
  std::string file = {};  // "" for the model
};

// Throws Error(BadInput) that says what is wrong with it.
HubReference parse_hub_reference(std::string_view text, const HubSettings& settings);

// Whether the text is an address of something that does not lie on the hub of these settings.
bool is_foreign_address(std::string_view text, const HubSettings& settings);

enum class BlobHash {
  Sha256,   // of the bytes: large files
  GitSha1,  // of the bytes after git's head: small ones
  Unknown,  // a name that says nothing of the bytes
};

struct HubFile {
  std::string path;  // inside the repository; checked
  std::uint64_t size = 0;
  std::string blob;  // the name of its bytes in the cache: their hash; "": not known yet
  BlobHash hash = BlobHash::Unknown;
};

struct HubListing {
  std::string name, revision, commit;
  std::vector<HubFile> files;  // sorted by path
};

// Asks the hub. Throws Error, also for a listing that breaks its own rules.
HubListing list_repository(HubClient& client, const HubReference& reference);

// Asks for size and hash of a file where the listing has left them out: some mirrors do.
void complete_file(HubClient& client, const HubListing& listing, HubFile& file);

Url hub_file_url(const HubSettings& settings, const std::string& name, const std::string& revision,
                 const std::string& path);

}  // namespace moeflux
