// Fetches a model from the hub into the cache, or one file from an address; what is there already
// is not fetched again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/repository.h"
#include "hub/selection.h"
#include "hub/transfer.h"

namespace moeflux {

struct PullOptions {
  HubClientOptions client;
  TransferOptions transfer;
  // Bytes free on the drive of a directory.
  std::function<std::uint64_t(const std::string&)> free = {};
  // Once what is to be fetched is known; then while it comes, some times a second. May throw.
  std::function<void(const struct PullPlan&)> planned = {};
  std::function<void(const TransferState&)> progress = {};
  std::function<void()> linking = {};
};

struct PullPlan {
  std::string name, revision, commit;
  std::vector<HubFile> files;
  std::uint64_t total_bytes = 0, present_bytes = 0;
};

struct PullReport {
  PullPlan plan;
  std::string path;  // what to open: the snapshot, or the file
  std::uint64_t fetched_bytes = 0;
};

PullReport pull_model(const HubReference& reference, FileChoice choice, const PullOptions& options);

// What would be fetched: only the listing is.
PullPlan plan_pull(const HubReference& reference, FileChoice choice, const PullOptions& options);

// One file from any host into `directory`, which must exist, under the last part of its address.
// `sha256`: that it must have; "" where nobody says.
PullReport pull_address(const Url& url, const std::string& directory, const std::string& sha256,
                        const PullOptions& options);

}  // namespace moeflux
