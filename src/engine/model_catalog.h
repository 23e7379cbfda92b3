// The models of a directory, by name.
//
// A model is a checkpoint directory of any layout that open_source() knows, or a GGUF file beside
// others, or a folder of the hub's cache (source/hub_cache.h), which is called "org/name". Its name
// is its directory's or its file's, with that of the directory around it where models are sorted by
// who made them: "qwen", "org/qwen", "org/qwen/qwen-Q4_K_M". Hidden directories are left out; links
// are followed. No weights are read.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"

namespace moeflux {

struct CatalogEntry {
  std::string name;
  std::string path;
  std::uint64_t bytes = 0;    // of its files
  std::int64_t modified = 0;  // of the newest file, in seconds since 1970
  std::string format = {};    // "container", "mlx", "gguf", ...; "" when not known
  std::string family = {};    // "qwen3_5_moe"; "" when not known
  std::int64_t n_parameters = 0;
  double expert_bits = 0;    // stored bits per weight of an expert, scales included
  std::string problem = {};  // why it cannot be opened; empty: it can
};

// Sorted by name. A directory that is itself a model is the only one. What cannot be read is an
// entry with a problem; throws Error only when `directory` itself cannot be listed.
std::vector<CatalogEntry> list_models(const std::string& directory);

// By name, by its last part where only one model has it, either in any case and with ":latest"
// after it. Throws Error(NotFound) that says what there is and which name is near, and
// Error(BadInput) for a part of several names. The result is one of `models`.
const CatalogEntry& find_model(const std::vector<CatalogEntry>& models, std::string_view name);
const CatalogEntry& find_model(std::vector<CatalogEntry>&&, std::string_view) = delete;

// A directory that is asked often: looked at again after `fresh`, and then only what has changed is
// opened. Any thread.
class ModelCatalog {
 public:
  explicit ModelCatalog(std::string directory,
                        std::chrono::milliseconds fresh = std::chrono::seconds(1));

  const std::string& directory() const { return directory_; }
  std::vector<CatalogEntry> list();  // as list_models()

 private:
  struct Known {
    CatalogEntry seen;  // from outside
    CatalogEntry opened;
  };
  void look();

  const std::string directory_;
  const std::chrono::milliseconds fresh_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> looked_;
  std::vector<Known> known_;  // sorted by name
};

// How many weights a model has, and how they are stored: what people call its size.
struct ParameterCount {
  std::int64_t n_parameters = 0;   // of matrices; vectors are too few to count
  std::uint64_t expert_bytes = 0;  // of routed experts, as stored
  double expert_bits = 0;          // of a weight of theirs, scales included; 0 where there are none
};

ParameterCount count_parameters(const ModelIndex& index);

}  // namespace moeflux
