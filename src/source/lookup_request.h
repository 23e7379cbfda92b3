// What the lookups of tensor_lookup.h share: the request, the tensors they find, and the errors
// that name them. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "source/model_source.h"
#include "source/tensor_lookup.h"

namespace moeflux::lookup {

using Shape = std::vector<std::int64_t>;

// What a caller asks for: one matrix, or a stack of them when n_experts > 0.
struct Request {
  const ModelSource& source;
  const std::string& module;
  int n_experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  FloatStack floats = FloatStack::Matrices;

  Shape shape(std::int64_t n_rows, std::int64_t n_cols) const {
    return n_experts > 0 ? Shape{n_experts, n_rows, n_cols} : Shape{n_rows, n_cols};
  }
};

struct Named {
  std::string name;
  const TensorInfo* info = nullptr;
};

// The planes of the first (or only) matrix, and the steps to the next one.
struct Found {
  StoredMatrix matrix;
  StoredExpertBank::Strides strides;
};

// The tensor, which must be there: `why` says who needs it.
Named need(const Request& want, const std::string& name, std::string_view why);
[[noreturn]] void wrong_shape(const Request& want, const Named& tensor, std::string_view wanted);
bool has_shape(const Request& want, const TensorInfo& info, std::int64_t rows, std::int64_t cols);
void need_shape(const Request& want, const Named& tensor, std::int64_t rows, std::int64_t cols);
void need_dtype(const Request& want, const Named& tensor, std::initializer_list<DType> allowed);
std::int64_t last_dimension(const TensorInfo& info);

// Where the first matrix of the tensor lies; `stride` becomes the step to the next.
Extent take_plane(const Request& want, const TensorInfo& info, std::uint64_t& stride);
// The same of a number for each matrix: [], [1] or [n_experts], ...
Extent take_number(const Request& want, const Named& tensor, std::uint64_t& stride);

// The matrix is stored as `how` says: all of its rows, to begin with. Checks the bytes of planes.
void set_repack(const Request& want, Found& found, Repack how);

// Packed integers: GPTQ and AWQ (`<module>.qweight`), compressed-tensors
// (`<module>.weight_packed`).
Found take_qweight(const Request& want);
Found take_weight_packed(const Request& want);
// I8 with float scales: compressed-tensors "int-quantized".
Found take_signed(const Request& want, const Named& weight);

// E2M1 codes, two in a byte; `scales` are E8M0 or F8_E4M3. Without `tensor_scale`: none.
Found take_fp4(const Request& want, const Named& codes, const Named& scales,
               const Named& tensor_scale = {}, bool divides = false);

}  // namespace moeflux::lookup
