// From a module name to its stored matrix: recognises how the module's tensors are quantized,
// checks dtype and shape against what the model's config demands, and says which tensor of which
// checkpoint is wrong otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/stored_tensor.h"
#include "source/model_source.h"

namespace moeflux {

// Whether there is a tensor of that name, be it one that cannot be read.
bool has_tensor(const ModelSource& source, const std::string& name);

// The tensor, or Error(NotFound), or Error(Unsupported) when its element type cannot be read. `why`
// says who needs it.
const TensorInfo& need_tensor(const ModelSource& source, const std::string& name,
                              std::string_view why);

// True when `<module>.weight` or a bare `<module>` tensor exists.
bool has_module(const ModelSource& source, const std::string& module);

// The matrix of a linear layer or an embedding: `<module>.weight` (or a bare `<module>`), with
// `<module>.scales` and `.biases` (affine; bits and group follow from the shapes) or
// `<module>.weight_scale_inv` (FP8 blocks; `<module>_scale_inv` for a bare tensor).
// Dimensions of 1 are ignored: [C, K, 1] and [C, 1, K] are [C, K], and [K] is [1, K].
StoredMatrix find_matrix(const ModelSource& source, const std::string& module, std::int64_t rows,
                         std::int64_t cols);

// A stack [n_experts, rows, cols] of matrices under one module name, stored in the same ways.
StoredExpertBank find_stacked_matrices(const ModelSource& source, const std::string& module,
                                       int n_experts, std::int64_t rows, std::int64_t cols);

// A vector in a plain float type, under its full tensor name; or a stack [count, size] of them, as
// one vector.
StoredVector find_vector(const ModelSource& source, const std::string& name, std::int64_t size,
                         int count = 1);

// Reads a small vector to floats (its shift applied).
std::vector<float> read_vector(const ModelSource& source, const StoredVector& vector);

}  // namespace moeflux
