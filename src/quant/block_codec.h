// How blocks of GGUF (quant/block_type.h) decode: the reference that faster ways are checked
// against. What a block holds and how is said here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/block_type.h"

namespace moeflux {

bool has_block_codec(BlockType type);

// `n_blocks` blocks, one after the other, as floats: out[n_blocks * block_shape(type).values]. Each
// is the value that the format defines, rounded once where it is not a float.
void decode_blocks(BlockType type, const std::byte* blocks, std::int64_t n_blocks,
                   float* out) noexcept;

}  // namespace moeflux
