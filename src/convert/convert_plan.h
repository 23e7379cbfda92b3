// What a conversion will write, decided before it writes: which tensors are dense, how the routed
// experts of each layer are cut into planes, and under which names. Works for every family: it
// asks only for what the model's index refers to.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/container_spec.h"
#include "families/family.h"
#include "model/blocks.h"
#include "source/model_source.h"

namespace moeflux {

// Every dense weight of a model, in the order in which a pass needs them.
struct DenseWeights {
  std::vector<StoredMatrix> matrices;  // none of them empty
  std::vector<StoredVector> vectors;
};
DenseWeights dense_weights(const ModelTensors<Stored>& tensors);

// The names of the source's tensors that hold those weights, each once.
std::vector<std::string> dense_tensor_names(const ModelSource& source,
                                            const ModelTensors<Stored>& tensors);

inline constexpr std::array kExpertBits{2, 3, 4, 5, 6, 8};
inline constexpr std::array kExpertGroups{32, 64, 128};

// Store routed experts in fewer bits than the source has.
struct Requantize {
  int bits = 4;    // one of kExpertBits
  int group = 64;  // one of kExpertGroups: columns that share a scale
};

// One matrix of every expert of a layer.
struct PlannedMatrix {
  std::string projection;  // "gate_proj"; "gate_up_proj" where the two cannot be parted
  std::string module;      // its name in the container, without ".weight"
  StoredExpertBank from;
  StoredExpertBank and_from;  // gate_up_proj: the rows that follow
  WeightFormat format;        // as it is written
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool requantized = false;

  // Where the source has it.
  StoredMatrix source(int expert) const;
  std::vector<ContainerSpec::Tensor> planes() const;
};

struct PlannedBank {
  std::string name;  // "model.layers.3.mlp."
  int n_experts = 0;
  std::vector<PlannedMatrix> matrices;
};

struct ConvertPlan {
  std::vector<std::string> dense;  // tensors of the source that are copied as they are
  std::vector<PlannedBank> banks;
  bool has_fp8 = false;  // in what is written

  ContainerSpec spec(const ModelSource& source) const;
};

// Throws Error when the experts cannot be laid out, or not requantized with this group.
ConvertPlan plan_conversion(const ModelSource& source, const ModelIndex& index,
                            const std::optional<Requantize>& requantize);

}  // namespace moeflux
