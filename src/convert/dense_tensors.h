// Every dense weight of a model, in the order in which a pass needs them.
#pragma once

#include <vector>

#include "model/blocks.h"
#include "source/model_source.h"

namespace moeflux {

struct DenseWeights {
  std::vector<StoredMatrix> matrices;  // none of them empty
  std::vector<StoredVector> vectors;
};
DenseWeights dense_weights(const ModelTensors<Stored>& tensors);

// The names of the source's tensors that hold those weights, each once.
std::vector<std::string> dense_tensor_names(const ModelSource& source,
                                            const ModelTensors<Stored>& tensors);

}  // namespace moeflux
