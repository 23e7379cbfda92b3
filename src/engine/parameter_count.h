// How many weights a model has, and how they are stored: what people call its size.
#pragma once

#include <cstdint>

#include "model/blocks.h"

namespace moeflux {

struct ParameterCount {
  std::int64_t n_parameters = 0;   // of matrices; vectors are too few to count
  std::uint64_t expert_bytes = 0;  // of routed experts, as stored
  double expert_bits = 0;          // of a weight of theirs, scales included; 0 where there are none
};

ParameterCount count_parameters(const ModelIndex& index);

}  // namespace moeflux
