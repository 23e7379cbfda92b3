// Makes the record of one expert: its planes copied from the source, or requantized. Each thread
// has a builder of its own.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "convert/affine_quantizer.h"
#include "convert/convert_plan.h"
#include "source/container_manifest.h"
#include "source/model_source.h"

namespace moeflux {

class RecordBuilder {
 public:
  explicit RecordBuilder(const ModelSource& source) : source_(source) {}

  // Valid until the next call.
  std::span<const std::byte> build(const PlannedBank& bank, const ContainerBank& layout,
                                   int expert);
  // Of the last one: by matrix of the bank, zeros for those that were copied.
  std::span<const SquaredError> errors() const { return errors_; }

 private:
  void copy(const StoredMatrix& from, std::span<const ContainerPlane> planes);
  void arrange(const ContainerPlane& plane, bool is_in_panels);
  SquaredError requantize(const PlannedMatrix& matrix, int expert,
                          std::span<const ContainerPlane> planes);

  const ModelSource& source_;
  std::vector<std::byte> record_, scratch_;
  std::vector<float> row_;
  std::vector<SquaredError> errors_;
};

// The errors as text that keeps every bit, and back; those are zero when it is none.
std::string errors_text(std::span<const SquaredError> errors);
std::vector<SquaredError> parse_errors(const std::string& text, std::size_t count);

}  // namespace moeflux
