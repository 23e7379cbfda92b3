// How often each expert of a model is used, kept from run to run, so that a cache can be filled
// with the right experts before the first request. Counts fade: what was used long ago counts less.
//
// The file belongs to one model (its fingerprint) and carries a checksum. It is a hint: a file that
// is damaged, of another model or of another version is ignored, with a sentence that says so.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experts/expert_ids.h"

namespace moeflux {

class UsageProfile {
 public:
  // n_experts: of each layer. `half_life` is in requests of a layer.
  UsageProfile(std::string fingerprint, const std::vector<int>& n_experts,
               double half_life = kHalfLife);

  struct Loaded;
  // An empty profile when there is no file or it cannot be used. Never throws for what is in it.
  static Loaded load(const std::string& path, std::string fingerprint,
                     const std::vector<int>& n_experts);
  // Replaces the file as a whole: whoever reads it, at any time, finds the old or the new one.
  // Creates the directory. Throws Error(Io).
  void save(const std::string& path) const;

  void record(int layer, std::span<const int> experts);  // a request

  bool empty() const;
  // The share of the layer's requests that asked for the expert, recent ones counting more.
  double rate(int layer, int expert) const;
  // At most n experts that were ever used, the one used most often first: the order to warm.
  std::vector<ExpertKey> hottest(std::size_t n) const;

  const ExpertIds& expert_ids() const { return ids_; }

  static constexpr double kHalfLife = 4096;

 private:
  struct Layer {
    double weight = 1;    // of a use now; grows, so that the counts need not shrink
    double requests = 0;  // each with its weight
  };
  std::string encode() const;
  void decode(std::string_view bytes);  // throws Error; *this is then in no particular state

  std::string fingerprint_;
  ExpertIds ids_;
  double growth_;
  std::vector<Layer> layers_;
  std::vector<double> counts_;  // [n_experts], each use with its weight
};

struct UsageProfile::Loaded {
  UsageProfile profile;
  std::string warning;  // why a file that exists was not used; empty when all is well
};

// Where a profile lies by default: CACHE/moeflux/FINGERPRINT.profile.
std::string usage_profile_path(const std::string& cache_directory, const std::string& fingerprint);

}  // namespace moeflux
