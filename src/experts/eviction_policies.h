// The policies that make_policy() knows, one file each (eviction_NAME.cpp).
#pragma once

#include <cstddef>
#include <memory>

#include "experts/eviction.h"

namespace moeflux {

std::unique_ptr<EvictionPolicy> make_lru(const ExpertIds& experts, std::size_t n_slots);
std::unique_ptr<EvictionPolicy> make_frequency(const ExpertIds& experts, std::size_t n_slots);
std::unique_ptr<EvictionPolicy> make_learned(const ExpertIds& experts, std::size_t n_slots);

}  // namespace moeflux
