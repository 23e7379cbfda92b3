// A prefix store as a whole, for whoever looks after it: what it holds, whether it is sound, and
// how to empty it. Needs no model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/prefix/prefix_store_scan.h"

namespace moeflux {

// The files of one model, as computed in one way.
struct PrefixStoreModel {
  std::uint64_t root = 0;
  std::string identity;  // as session_sync.h words it; "" when no file says it
  std::uint64_t n_states = 0, n_blocks = 0;
  std::uint64_t bytes = 0;
  std::int64_t longest = 0;  // positions
  std::int64_t used_ns = 0;  // the latest use
};

struct PrefixStoreSummary {
  std::vector<PrefixStoreModel> models;  // the one used last comes first
  std::uint64_t bytes = 0;
  std::uint64_t n_files = 0, n_leftovers = 0, n_foreign = 0;
  std::uint64_t written_today = 0;
};
PrefixStoreSummary summarize_prefix_store(const std::string& directory);

// Reads every byte and removes files that are damaged; those that cannot be read stay.
struct PrefixStoreCheck {
  std::uint64_t n_files = 0, bytes = 0;
  std::vector<std::string> damaged;  // why, one line each
};
PrefixStoreCheck verify_prefix_store(const std::string& directory);

// Deletes all files of the store and what killed writers left, and nothing else. Returns how many
// files. Throws Error(Io) when one cannot be deleted.
std::uint64_t clear_prefix_store(const std::string& directory);

}  // namespace moeflux
