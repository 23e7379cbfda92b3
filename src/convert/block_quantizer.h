// Quantizes rows of floats to blocks of GGUF (quant/block_codec.h).
//
// What is minimized is the sum of squared errors, each times the importance of its column. Codes
// are always chosen against scales as they are stored. Those are searched for: each group tries
// several clipped ranges and refines each by least squares; then the scales of the block are put on
// their common grid, that grid is fitted to all codes of the block, and each group looks whether a
// neighbouring scale serves it better.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "convert/affine_quantizer.h"
#include "quant/block_type.h"

namespace moeflux {

std::uint16_t float_to_f16(float value);  // to nearest, ties to even

bool can_quantize(BlockType type);  // Q8_0, Q4_K, Q6_K

// out: the blocks of the row. importance: of each column, not negative, such as the mean square of
// the activations it is multiplied by; empty: all count alike. The row must be finite. The error is
// the plain one.
SquaredError quantize_block_row(std::span<const float> row, BlockType type,
                                std::span<const float> importance, std::byte* out);

}  // namespace moeflux
