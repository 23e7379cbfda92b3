// The block formats of GGUF: a row is a sequence of blocks of `values` numbers in `bytes` bytes
// each, with their scales inside. How a block decodes is in quant/block_codec.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moeflux {

enum class BlockType : std::uint8_t {
  None,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ1_S,
  IQ1_M,
  IQ2_XXS,
  IQ2_XS,
  IQ2_S,
  IQ3_XXS,
  IQ3_S,
  IQ4_NL,
  IQ4_XS,
  TQ1_0,
  TQ2_0,
  MXFP4,
  NVFP4,
};

struct BlockShape {
  std::int64_t values = 0;
  std::int64_t bytes = 0;
};

inline constexpr std::int64_t kMostBlockValues = 256, kMostBlockBytes = 210;

BlockShape block_shape(BlockType type);            // {0, 0} for None
std::string_view block_type_name(BlockType type);  // "q4_k"; empty for None
// By the number that a GGUF file gives it, and the other way round; none for element types that are
// no blocks (F32, ...) and for numbers that are not known.
std::optional<BlockType> block_type_of_gguf(std::uint32_t id);
std::uint32_t gguf_id(BlockType type);
std::optional<BlockType> parse_block_type(std::string_view name);  // by block_type_name()

}  // namespace moeflux
