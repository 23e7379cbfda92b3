// From the list of tensors in the header of a GGUF file to where they lie in it: element types,
// bounds, order.
#pragma once

#include <optional>
#include <vector>

#include "base/gguf_header.h"
#include "source/model_source.h"

namespace moeflux {

struct PlacedTensor {
  const GgufTensor* tensor = nullptr;
  std::optional<TensorInfo> info;  // nothing of an element type that is not read
};

// Those of one file, in the order of its header; `file` becomes theirs. Throws Error when the file
// ends before one of them, saying how many bytes are missing, or when two overlap.
std::vector<PlacedTensor> place_gguf_tensors(const GgufHeader& part, int file);

}  // namespace moeflux
