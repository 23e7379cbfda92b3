#include "quant/block_type.h"

#include <array>

namespace moeflux {
namespace {

struct Row {
  BlockType type;
  std::uint32_t id;
  std::string_view name;
  BlockShape shape;
};

// In the order of BlockType.
constexpr std::array<Row, 24> kTypes{{
    {BlockType::None, 0, "", {}},
    {BlockType::Q4_0, 2, "q4_0", {32, 18}},
    {BlockType::Q4_1, 3, "q4_1", {32, 20}},
    {BlockType::Q5_0, 6, "q5_0", {32, 22}},
    {BlockType::Q5_1, 7, "q5_1", {32, 24}},
    {BlockType::Q8_0, 8, "q8_0", {32, 34}},
    {BlockType::Q2_K, 10, "q2_k", {256, 84}},
    {BlockType::Q3_K, 11, "q3_k", {256, 110}},
    {BlockType::Q4_K, 12, "q4_k", {256, 144}},
    {BlockType::Q5_K, 13, "q5_k", {256, 176}},
    {BlockType::Q6_K, 14, "q6_k", {256, 210}},
    {BlockType::IQ1_S, 19, "iq1_s", {256, 50}},
    {BlockType::IQ1_M, 29, "iq1_m", {256, 56}},
    {BlockType::IQ2_XXS, 16, "iq2_xxs", {256, 66}},
    {BlockType::IQ2_XS, 17, "iq2_xs", {256, 74}},
    {BlockType::IQ2_S, 22, "iq2_s", {256, 82}},
    {BlockType::IQ3_XXS, 18, "iq3_xxs", {256, 98}},
    {BlockType::IQ3_S, 21, "iq3_s", {256, 110}},
    {BlockType::IQ4_NL, 20, "iq4_nl", {32, 18}},
    {BlockType::IQ4_XS, 23, "iq4_xs", {256, 136}},
    {BlockType::TQ1_0, 34, "tq1_0", {256, 54}},
    {BlockType::TQ2_0, 35, "tq2_0", {256, 66}},
    {BlockType::MXFP4, 39, "mxfp4", {32, 17}},
    {BlockType::NVFP4, 40, "nvfp4", {64, 36}},
}};

const Row& row_of(BlockType type) {
  return kTypes[static_cast<std::size_t>(type)];
}

}  // namespace

BlockShape block_shape(BlockType type) {
  return row_of(type).shape;
}

std::string_view block_type_name(BlockType type) {
  return row_of(type).name;
}

std::optional<BlockType> block_type_of_gguf(std::uint32_t id) {
  for (const Row& row : kTypes)
    if (row.type != BlockType::None && row.id == id) return row.type;
  return std::nullopt;
}

std::optional<BlockType> parse_block_type(std::string_view name) {
  for (const Row& row : kTypes)
    if (row.type != BlockType::None && row.name == name) return row.type;
  return std::nullopt;
}

std::uint32_t gguf_id(BlockType type) {
  return row_of(type).id;
}

}  // namespace moeflux
