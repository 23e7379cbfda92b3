// The usage profile of one model across runs: read when it is opened, told of every request, saved
// when asked. A profile that cannot be used is not an error: the cache just starts cold.
#pragma once

#include <span>
#include <string>

#include "experts/trace.h"
#include "experts/usage_profile.h"
#include "source/model_source.h"

namespace moeflux {

class ProfileKeeper final : public RequestObserver {
 public:
  ProfileKeeper(const std::string& directory, const ModelSource& source, const ExpertIds& experts);

  const UsageProfile& profile() const { return loaded_.profile; }
  const std::string& warning() const { return loaded_.warning; }

  void on_step(int n_tokens) override { n_tokens_ += n_tokens; }
  void on_request(int layer, std::span<const int> experts) override {
    loaded_.profile.record(layer, experts);
  }

  // Writes nothing when nothing was learned. Throws Error(Io).
  void save();

 private:
  std::string path_;
  UsageProfile::Loaded loaded_;
  std::int64_t n_tokens_ = 0;
};

}  // namespace moeflux
