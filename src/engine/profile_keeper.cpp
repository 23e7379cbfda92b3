#include "engine/profile_keeper.h"

#include <fmt/format.h>

#include "source/checksum.h"

namespace moeflux {
namespace {

// Names the weights. Only containers carry such a name; of other checkpoints it is made from what
// changes when the weights do: their files and sizes.
std::string name_of(const ModelSource& source) {
  if (!source.fingerprint().empty()) return source.fingerprint();
  std::string text = dump_json(source.config());
  for (int i = 0; i < source.n_disk_files(); ++i) {
    text += fmt::format("|{} {}", source.disk_file(i).path(), source.disk_file(i).size());
  }
  return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text))));
}

}  // namespace

ProfileKeeper::ProfileKeeper(const std::string& directory, const ModelSource& source,
                             const ExpertIds& experts)
    : path_(usage_profile_path(directory, name_of(source))),
      loaded_(UsageProfile::load(path_, name_of(source), experts.n_experts())) {}

void ProfileKeeper::save() {
  if (n_tokens_ > 0) loaded_.profile.save(path_);
  n_tokens_ = 0;
}

}  // namespace moeflux
