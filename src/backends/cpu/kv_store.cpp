// New keys and values on their way into the cache. All of it is plain arithmetic, so that the bytes
// are the same on every machine.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/host_ops.h"
#include "base/error.h"

namespace moeflux::cpu {
namespace {

// To the nearest, ties to even. What is finite stays finite.
std::uint16_t to_f16(float x) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;  // NaN
  } else if (magnitude == 0x7F800000u) {
    half = 0x7C00u;
  } else if (magnitude >= 0x477FF000u) {
    half = 0x7BFFu;  // 65504
  } else if (magnitude >= 0x38800000u) {
    half = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  } else {  // subnormal: the sum's unit in the last place is that of the result
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

std::uint16_t to_bf16(float x) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// The least bf16 that is not below x > 0, so that no code overflows.
std::uint16_t to_bf16_upwards(float x) noexcept {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + 0xFFFFu) >> 16);
}

// A row of a cache: value c is at codes + c * step. Steps are in elements of the type.
struct Row {
  std::byte* at;      // value 0
  std::byte* scales;  // of the first group; q8 only
  std::int64_t step;  // 1, or 16 in a tile
};

Row row_of(const KvView& view, std::int64_t head, std::int64_t position) {
  std::byte* begin = kv_at(view, head, position);
  const bool tiled = view.shape.layout == KvLayout::Tiles;
  const std::int64_t step = tiled ? kKvLanes : 1, lane = tiled ? position % kKvLanes : 0;
  const std::int64_t size = view.shape.type == KvType::F32  ? 4
                            : view.shape.type == KvType::Q8 ? 1
                                                            : 2;
  return {begin + lane * size, begin + view.shape.d * step + 2 * lane, step};
}

template <class T>
void put(std::byte* at, std::int64_t index, T value) noexcept {
  std::memcpy(at + index * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
}

// A value that is not finite takes the other 31 with it.
void store_q8(const Row& row, const float* x, int d) noexcept {
  constexpr float kMost = 127, kRound = 0x1.8p+23f;
  for (int begin = 0, group = 0; begin < d; begin += kKvQ8Group, ++group) {
    const int end = std::min(begin + kKvQ8Group, d);
    float top = 0;
    bool finite = true;
    for (int c = begin; c < end; ++c) {
      top = std::max(top, std::abs(x[c]));
      finite = finite && std::isfinite(x[c]);
    }
    std::uint16_t scale = finite ? to_bf16_upwards(top / kMost) : std::uint16_t{0x7FC0};
    const float unit = std::bit_cast<float>(std::uint32_t{scale} << 16);
    put(row.scales, group * row.step, scale);
    for (int c = begin; c < end; ++c) {
      const float code = finite && unit > 0 ? (x[c] / unit + kRound) - kRound : 0.0f;
      put(row.at, c * row.step, static_cast<std::int8_t>(code));
    }
  }
}

void store_row(const KvView& view, const Row& row, const float* x) noexcept {
  const int d = view.shape.d;
  switch (view.shape.type) {
    case KvType::F32:
      for (int c = 0; c < d; ++c) put(row.at, c * row.step, x[c]);
      return;
    case KvType::F16:
      for (int c = 0; c < d; ++c) put(row.at, c * row.step, to_f16(x[c]));
      return;
    case KvType::BF16:
      for (int c = 0; c < d; ++c) put(row.at, c * row.step, to_bf16(x[c]));
      return;
    case KvType::Q8:
      store_q8(row, x, d);
      return;
  }
}

}  // namespace

void CpuBackend::store_kv(const StoreKvOp& op) {
  const KvShape& shape = op.cache.shape;
  const std::int64_t first = first_position(op.positions);
  MOEFLUX_ASSERT(first + op.x.rows <= shape.capacity);
  pool_.parallel_for(op.x.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (int head = 0; head < shape.n_heads; ++head) {
      for (std::int64_t i = begin; i < end; ++i) {
        store_row(op.cache, row_of(op.cache, head, first + i),
                  floats(op.x) + i * op.x.stride + std::int64_t{head} * shape.d);
      }
    }
  });
}

}  // namespace moeflux::cpu
