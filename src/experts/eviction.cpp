#include "experts/eviction.h"

#include <array>

#include "base/error.h"
#include "experts/eviction_policies.h"

namespace moeflux {
namespace {

using Maker = std::unique_ptr<EvictionPolicy> (*)(const ExpertIds&, std::size_t);

struct Entry {
  PolicyInfo info;
  Maker make;
};

constexpr std::array kPolicies{
    Entry{{"lru", "least recently used"}, make_lru},
    Entry{{"frequency", "least often used of late; layers just passed before layers to come"},
          make_frequency},
    Entry{{"learned", "longest until its next use, as learned from the requests so far (default)"},
          make_learned},
};

}  // namespace

const std::vector<PolicyInfo>& policy_list() {
  static const std::vector<PolicyInfo> list = [] {
    std::vector<PolicyInfo> all;
    for (const Entry& entry : kPolicies) all.push_back(entry.info);
    return all;
  }();
  return list;
}

std::string policy_names() {
  std::string names;
  for (const Entry& entry : kPolicies) {
    if (!names.empty()) names += ", ";
    names += entry.info.name;
  }
  return names;
}

std::unique_ptr<EvictionPolicy> make_policy(std::string_view name, const ExpertIds& experts,
                                            std::size_t n_slots) {
  for (const Entry& entry : kPolicies) {
    if (entry.info.name == name) return entry.make(experts, n_slots);
  }
  fail(Errc::BadInput, "unknown eviction policy \"{}\" (known: {})", name, policy_names());
}

}  // namespace moeflux
