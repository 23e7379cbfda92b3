// What lies in the directory of a prefix store, and what of it to give up first. Only names, sizes
// and times are looked at; no file is opened, so ten thousand of them take milliseconds.
//
//   DIRECTORY/lock, DIRECTORY/written       see prefix_store_ledger.h
//   DIRECTORY/ROOT/NAME                     a file; ROOT is the root key of one model
//   DIRECTORY/ROOT/NAME.part                a file that is being written, or what a killed writer
//   left
//
// Everything else is not ours: it is counted and left alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/prefix/prefix_store_key.h"

namespace moeflux {

inline constexpr std::int64_t kInUse = INT64_MAX;  // not to be given up

struct PrefixFile {
  std::uint64_t root = 0;
  PrefixName name;
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;  // when it was last written or read, since 1970; or kInUse

  std::string path(const std::string& directory) const;
};

struct PrefixScan {
  std::vector<PrefixFile> files;
  std::vector<std::string> leftovers;  // paths of .part files
  std::uint64_t bytes = 0;             // of files
  std::uint64_t n_foreign = 0;
};

// Empty when the directory does not exist or cannot be read; throws nothing but bad_alloc. What
// vanishes meanwhile is not there.
PrefixScan scan_prefix_store(const std::string& directory);
// Only the names of one model's files.
std::vector<PrefixName> scan_prefix_names(const std::string& directory, std::uint64_t root);

// The files to delete, in this order, to free that many bytes or all. The least recently used go
// first, but never one that others continue: a state goes before the blocks it needs. What can no
// longer be used, because a block before it is missing, goes before everything else.
std::vector<const PrefixFile*> choose_victims(std::span<const PrefixFile> files,
                                              std::uint64_t bytes);

// Deletes .part files which nobody writes and nobody has touched for that long.
void remove_leftovers(std::span<const std::string> paths, std::int64_t min_age_seconds);

}  // namespace moeflux
