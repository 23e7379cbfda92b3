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

// True when there is a matrix of that name in any of the ways find_matrix() knows.
bool has_module(const ModelSource& source, const std::string& module);

// The matrix of a linear layer or an embedding, recognised by the tensors that are there:
//   <module>.weight, or a bare <module>
//     F32, F16, BF16          plain
//     U32                     MLX: with .scales and .biases affine; with U8 scales alone mxfp4,
//                             nvfp4 or mxfp8. Bits and group follow from the shapes.
//     F8_E4M3                 with .weight_scale_inv or .scale in blocks; with .weight_scale per
//                             tensor, per row or in blocks
//     U8, I8 [rows, cols / 2] FP4: with .weight_scale and .weight_scale_2 nvfp4, with .scale mxfp4
//     I8                      with .weight_scale (and .weight_zero_point)
//     blocks of GGUF          as they are; NVFP4 with .scale as FP4
//   <module>.weight_packed    compressed-tensors: I32 integers, U8 FP4
//   <module>.qweight          GPTQ or AWQ
//   <module>_blocks           mxfp4 [rows, cols / 32, 16] with <module>_scales
// Dimensions of 1 are ignored: [C, K, 1] and [C, 1, K] are [C, K], and [K] is [1, K].
StoredMatrix find_matrix(const ModelSource& source, const std::string& module, std::int64_t rows,
                         std::int64_t cols);

// A stack [n_experts, rows, cols] of matrices under one module name, stored in the same ways. Some
// exporters store stacks of plain floats as [n_experts, cols, rows]: only their family knows.
enum class FloatStack { Matrices, Transposed };
StoredExpertBank find_stacked_matrices(const ModelSource& source, const std::string& module,
                                       int n_experts, std::int64_t rows, std::int64_t cols,
                                       FloatStack floats = FloatStack::Matrices);

// A vector in a plain float type, under its full tensor name; or a stack [count, size] of them, as
// one vector.
StoredVector find_vector(const ModelSource& source, const std::string& name, std::int64_t size,
                         int count = 1);

// Reads a small vector to floats (its factor and shift applied).
std::vector<float> read_vector(const ModelSource& source, const StoredVector& vector);

}  // namespace moeflux
