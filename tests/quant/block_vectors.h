// Blocks of every GGUF type with the values that another decoder gives them
// (tools/fixtures/make_block_vectors.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "quant/block_type.h"
#include "support/paths.h"

namespace moeflux::test {

struct BlockVectors {
  BlockType type = BlockType::None;
  std::int64_t n_blocks = 0;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

inline std::vector<BlockVectors> read_block_vectors() {
  std::ifstream file(data_path("blocks/blocks.bin"), std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<BlockVectors> result;
  std::size_t at = 0;
  const auto take = [&](void* to, std::size_t bytes) {
    ASSERT_LE(at + bytes, all.size());
    std::memcpy(to, all.data() + at, bytes);
    at += bytes;
  };
  while (at < all.size()) {
    std::uint32_t header[2] = {};
    take(header, sizeof header);
    BlockVectors& one = result.emplace_back();
    one.type = block_type_of_gguf(header[0]).value_or(BlockType::None);
    one.n_blocks = header[1];
    const BlockShape shape = block_shape(one.type);
    one.blocks.resize(static_cast<std::size_t>(one.n_blocks * shape.bytes));
    one.values.resize(static_cast<std::size_t>(one.n_blocks * shape.values));
    take(one.blocks.data(), one.blocks.size());
    take(one.values.data(), one.values.size() * sizeof(float));
  }
  return result;
}

}  // namespace moeflux::test
