// What a cache holds after rows were put into it: layouts, roundings, and that a position touches
// no other.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu_backends.h"
#include "backends/kv_memory.h"
#include "quant/codec.h"
#include "support/operands.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::Random;

// One value of a cache, read by what kv_cache.h says.
float value_at(const KvView& view, int head, std::int64_t position, int c) {
  const bool tiled = view.shape.layout == KvLayout::Tiles;
  const std::byte* begin = view.buffer->address() + view.offset + view.at(head, position);
  const std::int64_t index = tiled ? c * 16 + position % 16 : c;
  const auto u16 = [&](std::int64_t offset) {
    std::uint16_t bits;
    std::memcpy(&bits, begin + offset, 2);
    return bits;
  };
  switch (view.shape.type) {
    case KvType::F32: {
      float x;
      std::memcpy(&x, begin + 4 * index, 4);
      return x;
    }
    case KvType::F16:
      return f16_to_float(u16(2 * index));
    case KvType::BF16:
      return bf16_to_float(u16(2 * index));
    case KvType::Q8: {
      const std::int64_t codes = view.shape.d * (tiled ? 16 : 1);
      const std::int64_t group = c / 32 * (tiled ? 16 : 1) + (tiled ? position % 16 : 0);
      return static_cast<float>(static_cast<std::int8_t>(begin[index])) *
             bf16_to_float(u16(codes + 2 * group));
    }
  }
  return 0;
}

// Half a unit of the last place, relative to the value or to the largest of its group.
double allowed(KvType type, double x, double largest) {
  switch (type) {
    case KvType::F32:
      return 0;
    case KvType::F16:
      return std::abs(x) * 0x1p-11;
    case KvType::BF16:
      return std::abs(x) * 0x1p-8;
    case KvType::Q8:
      return largest / 127 * (1 + 0x1p-7) / 2;
  }
  return 0;
}

TEST(KvStore, EveryTypeAndLayout) {
  Random random(1);
  const auto backend = test::cpu_backend("scalar", 2);
  for (const KvType type : kAllKvTypes) {
    for (const KvLayout layout : {KvLayout::Rows, KvLayout::Tiles}) {
      for (const int d : {1, 32, 45, 128}) {
        constexpr int kHeads = 3;
        constexpr std::int64_t kLength = 50;
        const KvShape shape{type, layout, kHeads, d, kLength};
        EXPECT_EQ(shape.bytes(), static_cast<std::uint64_t>(kHeads * 64 * shape.row_bytes()));
        AlignedBuffer memory(shape.bytes());
        const KvView view = test::operand(shape, memory.data());
        const std::vector<float> x = random.floats(kLength * kHeads * d, 3);
        for (const auto& [at, n] : {std::pair<std::int64_t, std::int64_t>(0, 1), {1, 20}, {21, 29}})
          backend->store_kv({.cache = view,
                             .x = test::operand(x, kLength).row_range(at, n),
                             .positions = test::positions(at, n)});
        for (std::int64_t at = 0; at < kLength; ++at) {
          for (int h = 0; h < kHeads; ++h) {
            const float* row = &x[(at * kHeads + h) * d];
            for (int c = 0; c < d; ++c) {
              double largest = 0;
              for (int i = c / 32 * 32; i < std::min(d, c / 32 * 32 + 32); ++i)
                largest = std::max(largest, std::abs(static_cast<double>(row[i])));
              ASSERT_NEAR(value_at(view, h, at, c), row[c], allowed(type, row[c], largest))
                  << kv_type_name(type) << " d " << d << " at " << at << " " << h << " " << c;
            }
          }
        }
      }
    }
  }
}

TEST(KvStore, KernelsDecodeWhatIsStored) {
  Random random(2);
  const auto backend = test::cpu_backend("scalar");
  for (const int d : {1, 20, 32, 45, 256}) {
    const std::vector<float> x = random.floats(32 * d);
    const test::KvMemory rows({KvType::Q8, KvLayout::Rows, 1, d, 32}, *backend, x);
    const test::KvMemory tiles({KvType::Q8, KvLayout::Tiles, 1, d, 32}, *backend, x);
    std::vector<float> want_rows, want_tiles(x.size());
    for (std::int64_t at = 0; at < 32; ++at) {
      for (int c = 0; c < d; ++c) {
        want_rows.push_back(value_at(rows.view(), 0, at, c));
        want_tiles[(at / 16 * d + c) * 16 + at % 16] = value_at(tiles.view(), 0, at, c);
      }
    }
    for (const cpu::KernelTable* table : cpu::supported_kernels()) {
      std::vector<float> got(x.size());
      table->attention->decode_q8_rows(rows.view().buffer->address(), 32, d, got.data());
      test::expect_same_bits(want_rows, got, fmt::format("{} rows of {}", table->name, d));
      table->attention->decode_q8_tiles(tiles.view().buffer->address(), 2, d, got.data());
      test::expect_same_bits(want_tiles, got, fmt::format("{} tiles of {}", table->name, d));
    }
  }
}

float stored(KvType type, float x) {
  const auto backend = test::cpu_backend("scalar");
  const test::KvMemory memory({type, KvLayout::Rows, 1, 1, 1}, *backend, {x});
  return value_at(memory.view(), 0, 0, 0);
}

TEST(KvStore, RoundsToTheNearestTiesToEven) {
  EXPECT_EQ(stored(KvType::F16, 1 + 0x1p-11f), 1.0f);
  EXPECT_EQ(stored(KvType::F16, 1 + 3 * 0x1p-11f), 1 + 0x1p-9f);
  EXPECT_EQ(stored(KvType::F16, -0x1p-24f), -0x1p-24f);  // the least subnormal
  EXPECT_EQ(stored(KvType::F16, 0x1p-25f), 0.0f);
  EXPECT_EQ(stored(KvType::F16, 0x1.8p-24f), 0x1p-23f);
  EXPECT_EQ(stored(KvType::F16, 0x1.ff8p-15f), 0x1.ff8p-15f);  // the largest subnormal
  EXPECT_EQ(stored(KvType::F16, 0x1.fffffep-15f), 0x1p-14f);   // up to the least normal
  EXPECT_EQ(stored(KvType::BF16, 1 + 0x1p-8f), 1.0f);
  EXPECT_EQ(stored(KvType::BF16, 1 + 3 * 0x1p-8f), 1 + 0x1p-6f);
}

// Every f16 survives, as f32 between two of them goes to the nearer.
TEST(KvStore, EveryHalf) {
  const auto backend = test::cpu_backend("scalar");
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits)
    x.push_back(f16_to_float(static_cast<std::uint16_t>(bits)));
  const auto d = static_cast<int>(x.size());
  const test::KvMemory memory({KvType::F16, KvLayout::Rows, 1, d, 1}, *backend, x);
  std::vector<float> above;
  for (int c = 0; c < d; ++c) {
    ASSERT_EQ(value_at(memory.view(), 0, 0, c), x[c]);
    const float next = c + 1 < d ? x[c + 1] : 65536.0f;
    above.push_back(std::nextafter((x[c] + next) / 2, next));
  }
  const test::KvMemory rounded({KvType::F16, KvLayout::Rows, 1, d, 1}, *backend, above);
  for (int c = 0; c + 1 < d; ++c) ASSERT_EQ(value_at(rounded.view(), 0, 0, c), x[c + 1]);
}

TEST(KvStore, WhatIsFiniteStaysFinite) {
  for (const float x : {65519.0f, 65520.0f, 1e6f, 1e30f}) {
    EXPECT_EQ(stored(KvType::F16, x), 65504.0f) << x;
    EXPECT_EQ(stored(KvType::F16, -x), -65504.0f) << x;
  }
  EXPECT_NEAR(stored(KvType::Q8, 1e30f), 1e30f, 1e28f);
  EXPECT_EQ(stored(KvType::Q8, 0.0f), 0.0f);
}

TEST(KvStore, WhatIsNotStaysSo) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const KvType type : kAllKvTypes) {
    EXPECT_TRUE(std::isnan(stored(type, std::numeric_limits<float>::quiet_NaN())));
    EXPECT_FALSE(std::isfinite(stored(type, kInf)));
    EXPECT_FALSE(std::isfinite(stored(type, -kInf)));
  }
}

}  // namespace
}  // namespace moeflux
