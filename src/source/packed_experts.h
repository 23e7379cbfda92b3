// The blob of one expert in a flash-moe layer file: nine parts back to back, weight, scales and
// biases of gate_proj, up_proj and down_proj. The format has no header: sizes follow from the
// model's, and the bits from the size of the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "source/model_source.h"

namespace moeflux {

struct ExpertSizes {
  int n_experts = 0;
  std::int64_t d_model = 0;
  std::int64_t d_ff = 0;
  std::int64_t group = 64;  // divides both
};

struct PackedPart {
  std::string name;  // "gate_proj.weight"
  DType dtype = DType::U32;
  std::vector<std::int64_t> shape;  // of one expert
  std::uint64_t offset = 0;         // in the blob
  std::uint64_t bytes = 0;
};

struct PackedBlob {
  int bits = 0;
  std::uint64_t bytes = 0;
  std::vector<PackedPart> parts;
};
PackedBlob packed_blob(const ExpertSizes& sizes, int bits);

// Adds the nine tensors of one layer, named module + part ("model.layers.3.mlp.switch_mlp." +
// "gate_proj.weight"). `layout` is the path of a layout.json to check against, or empty.
void add_packed_layer(ModelSource& source, const std::string& path, const std::string& module,
                      const ExpertSizes& sizes, const std::string& layout);

}  // namespace moeflux
