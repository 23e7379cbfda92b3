// Rows of activations become halves, for products of many rows.
#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/products.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

// A row of a block. A thread has eight numbers at a time that lie together in the result; of rows
// that are not longer than its registers it reads them once.
constexpr int kHeld = 2;

struct Scale {
  float down, up;  // powers of two
};
// The largest becomes 2^14 to 2^15. What is infinite or no number stays so. `magnitude`: bits of
// the largest of this thread.
GPU_INLINE Scale scale_of_row(std::int32_t magnitude, std::int32_t* memory) {
  GPU_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::int32_t other = shuffle_xor(magnitude, mask);
    magnitude = other > magnitude ? other : magnitude;
  }
  if (lane() == 0) memory[warp()] = magnitude;
  sync();
  for (int w = 0; w < n_threads() / kWarp; ++w)
    magnitude = memory[w] > magnitude ? memory[w] : magnitude;
  constexpr int kFinite = 254, kSmallest = 21, kLargestExponent = 127 + 14;
  int exponent = magnitude >> 23;
  if (exponent > kFinite) exponent = kLargestExponent;
  if (exponent < kSmallest) exponent = kSmallest;
  return {float_of(static_cast<std::uint32_t>(127 + kLargestExponent - exponent) << 23),
          float_of(static_cast<std::uint32_t>(127 + exponent - kLargestExponent) << 23)};
}

// load(unit, values), then store(unit, values, scale) of all units of a row. All threads of a warp
// store, some of them nothing: `unit` is then beyond the row.
template <class Load, class Store>
GPU_INLINE Scale round_row(int n_units, std::int32_t* memory, const Load& load,
                           const Store& store) {
  std::int32_t top = 0;
  const auto note = [&top](const float(&values)[8]) GPU_LAMBDA {
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) {
      const auto own = static_cast<std::int32_t>(bits_of(values[i]) & 0x7FFFFFFFu);
      top = own > top ? own : top;
    }
  };
  float held[kHeld][8] = {};
  GPU_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int unit = thread() + i * n_threads();
    if (unit >= n_units) continue;
    load(unit, held[i]);
    note(held[i]);
  }
  for (int unit = thread() + kHeld * n_threads(); unit < n_units; unit += n_threads()) {
    float values[8];
    load(unit, values);
    note(values);
  }
  const Scale scale = scale_of_row(top, memory);
  GPU_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    if (i * n_threads() < n_units) store(thread() + i * n_threads(), held[i], scale.down);
  }
  for (int first = kHeld * n_threads(); first < n_units; first += n_threads()) {
    float values[8] = {};
    if (first + thread() < n_units) load(first + thread(), values);
    store(first + thread(), values, scale.down);
  }
  return scale;
}

struct Halves {
  Quad first, rest;
};
GPU_INLINE Halves halves_of(const float (&values)[8], float scale) {
  std::uint32_t first[4], rest[4];
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float one = values[2 * i] * scale, two = values[2 * i + 1] * scale;
    first[i] = to_half2(one, two);
    rest[i] = to_half2(one - from_half(static_cast<std::uint16_t>(first[i] & 0xFFFFu)),
                       two - from_half(static_cast<std::uint16_t>(first[i] >> 16)));
  }
  return {{first[0], first[1], first[2], first[3]}, {rest[0], rest[1], rest[2], rest[3]}};
}

GPU_INLINE const float* row_of(const RoundRowsParams& p) {
  const int row = block_x();
  return p.x + (p.rows == nullptr ? row : p.rows[row]) * p.x_stride;
}

}  // namespace

// A block for each row.
GPU_KERNEL(round_rows, RoundRowsParams, 256) {
  GPU_SHARED std::int32_t memory[32];
  const float* x = row_of(p);
  const int n_units = static_cast<int>(p.out_stride / 8) / p.n_parts;
  const bool are_quads = reinterpret_cast<std::uintptr_t>(p.x) % 16 == 0 && p.x_stride % 4 == 0;
  auto* out = reinterpret_cast<Quad*>(p.out + block_x() * p.out_stride);
  const auto load = [&](int unit, float(&values)[8]) GPU_LAMBDA {
    const int first = 8 * unit;
    if (are_quads && first + 8 <= p.cols) {
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        const FloatQuad quad = reinterpret_cast<const FloatQuad*>(x + first)[i];
        values[4 * i] = quad.x;
        values[4 * i + 1] = quad.y;
        values[4 * i + 2] = quad.z;
        values[4 * i + 3] = quad.w;
      }
    } else {
      GPU_UNROLL
      for (int i = 0; i < 8; ++i) values[i] = first + i < p.cols ? x[first + i] : 0.0f;
    }
  };
  const auto store = [&](int unit, const float(&values)[8], float scale) GPU_LAMBDA {
    if (unit >= n_units) return;
    const Halves halves = halves_of(values, scale);
    out[unit] = halves.first;
    if (p.n_parts > 1) out[n_units + unit] = halves.rest;
    if (p.n_parts > 2) out[2 * n_units + unit] = halves.first;
  };
  const Scale scale = round_row(n_units, memory, load, store);
  if (thread() == 0) p.scales[block_x()] = scale.up;
}

// For products that open weights in registers: in their order, and with the means of groups. A
// block for each row.
GPU_KERNEL(round_rows_direct, RoundRowsParams, 256) {
  GPU_SHARED std::int32_t memory[32];
  const float* x = row_of(p);
  const int n_units = p.cols / 8;
  auto* out = reinterpret_cast<Quad*>(p.out + block_x() * p.out_stride);
  std::uint16_t* means = p.means + block_x() * p.means_stride;
  const auto load = [&](int unit, float(&values)[8]) GPU_LAMBDA {
    const int first = 8 * unit;
    const float* from = x + first / kDirectDepth * kDirectDepth + depth_at(first % kDirectDepth);
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) values[i] = from[i / 2 * 32 + i % 2 * 4];
  };
  const auto store = [&](int unit, const float(&values)[8], float scale) GPU_LAMBDA {
    // Of every 32 columns of 128 the unit has two; sixteen threads have all.
    float sums[4];
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      sums[i] = values[2 * i] * scale + values[2 * i + 1] * scale;
      GPU_UNROLL
      for (int mask = 8; mask > 0; mask /= 2) sums[i] += shuffle_xor(sums[i], mask);
    }
    if (unit >= n_units) return;
    if (unit % 16 == 0) {
      std::uint16_t* to = means + unit / 16 * (kDirectDepth / p.group);
      const float share = 1.0f / static_cast<float>(p.group);
      if (p.group == 32) {
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) to[i] = to_half(sums[i] * share);
      } else if (p.group == 64) {
        to[0] = to_half((sums[0] + sums[1]) * share);
        to[1] = to_half((sums[2] + sums[3]) * share);
      } else {
        to[0] = to_half((sums[0] + sums[1] + (sums[2] + sums[3])) * share);
      }
    }
    const Halves halves = halves_of(values, scale);
    out[unit] = halves.first;
    if (p.n_parts == 2) out[n_units + unit] = halves.rest;
  };
  const Scale scale = round_row(n_units, memory, load, store);
  if (thread() == 0) p.scales[block_x()] = scale.up;
  // Groups fill whole pieces of 16.
  const int n_groups = p.cols / p.group;
  if (n_groups + thread() < p.means_stride) means[n_groups + thread()] = 0;
}

}  // namespace moeflux::gpu
GPU_CODE_END
