// Stored weights become halves, `unit` times as large, in chunks of 32 columns, eight at a time.
#pragma once

#include "backends/cuda/kernels/products.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

inline int scale_size(ScaleType type) {
  switch (type) {
    case ScaleType::F32:
      return 4;
    case ScaleType::F16:
    case ScaleType::BF16:
      return 2;
    default:
      return 1;
  }
}

// A row of a matrix that opens in chunks. What is the same for all rows comes from the matrix.
struct StoredRow {
  const unsigned char *data, *scales, *biases;
  float unit;  // and what else all scales are multiplied with
};

inline bool is_multiple(const void* address, std::int64_t of) {
  return reinterpret_cast<std::uintptr_t>(address) % of == 0;
}
inline int bias_size(const DeviceWeight& w) {
  return w.zero == Zero::ZeroPoint ? 1 : scale_size(w.scale_type);
}

// What addresses in all planes are multiples of: codes of 16 or 4, scales of their size.
enum class Places : std::int32_t { By16, By4, Odd };
GPU_INLINE Places places_of(const DeviceWeight& w) {
  const bool fits = is_multiple(w.data, 4) && w.row_bytes % 4 == 0 &&
                    is_multiple(w.scales, scale_size(w.scale_type)) &&
                    is_multiple(w.biases, bias_size(w));
  if (!fits) return Places::Odd;
  return is_multiple(w.data, 16) && w.row_bytes % 16 == 0 ? Places::By16 : Places::By4;
}

GPU_INLINE StoredRow stored_row(const DeviceWeight& w, int row, float unit) {
  StoredRow r;
  r.data = w.data + row * w.row_bytes;
  const int row_of_scales = w.kind == Kind::Fp8Block ? (row + w.block_row0) / w.block_rows : row;
  const std::int64_t first_scale = std::int64_t{row_of_scales} * w.scales_per_row;
  r.scales = w.scales + first_scale * scale_size(w.scale_type);
  r.biases = w.biases + first_scale * bias_size(w);
  r.unit = unit;
  if (w.kind == Kind::Fp4 && w.has_tensor_scale) {
    const float of_all = float_of(load_32_bits(w.biases));
    r.unit = w.tensor_scale_divides ? unit / of_all : unit * of_all;
  }
  return r;
}

inline std::uint32_t load_scale_bits(const unsigned char* plane, int size, int index, bool fits) {
  if (size == 1) return plane[index];
  if (size == 2)
    return fits ? reinterpret_cast<const std::uint16_t*>(plane)[index]
                : load_16_bits(plane + 2 * index);
  return fits ? reinterpret_cast<const std::uint32_t*>(plane)[index]
              : load_32_bits(plane + 4 * index);
}
inline float scale_of_bits(ScaleType type, std::uint32_t bits) {
  switch (type) {
    case ScaleType::F32:
      return float_of(bits);
    case ScaleType::F16:
      return from_half(static_cast<std::uint16_t>(bits));
    case ScaleType::BF16:
      return float_of(bits << 16);
    case ScaleType::E8M0:
      return decode_e8m0(bits);
    case ScaleType::E4M3:
      return decode_e4m3(bits);
  }
  return 0;
}

// A chunk as it is stored. kBits is of a number.
template <Kind kKind, int kBits>
struct StoredChunk {
  static constexpr bool kHasScales =
      kKind == Kind::Affine || kKind == Kind::Fp8Block || kKind == Kind::Fp4;
  static constexpr int kScales = kKind == Kind::Fp4 ? 2 : 1;  // of its halves
  std::uint32_t dwords[kBits];
  std::uint32_t scales[kScales];
  std::uint32_t biases[kScales];
};

// From a column on that is a multiple of 32. Beyond the last column are zeros.
template <Kind kKind, int kBits>
GPU_INLINE void load_chunk(const DeviceWeight& w, const StoredRow& row, Places places, int column,
                           StoredChunk<kKind, kBits>& chunk) {
  using Chunk = StoredChunk<kKind, kBits>;
  if (column >= w.cols) {
    GPU_UNROLL
    for (int i = 0; i < kBits; ++i) chunk.dwords[i] = 0;
    GPU_UNROLL
    for (int i = 0; i < Chunk::kScales; ++i) chunk.scales[i] = chunk.biases[i] = 0;
    return;
  }
  const unsigned char* from = row.data + std::int64_t{column / kOpenedChunk} * (4 * kBits);
  if (kBits % 4 == 0 && places == Places::By16) {
    GPU_UNROLL
    for (int i = 0; i < kBits / 4; ++i) {
      const Quad quad = reinterpret_cast<const Quad*>(from)[i];
      chunk.dwords[4 * i] = quad.x;
      chunk.dwords[4 * i + 1] = quad.y;
      chunk.dwords[4 * i + 2] = quad.z;
      chunk.dwords[4 * i + 3] = quad.w;
    }
  } else if (places != Places::Odd) {
    GPU_UNROLL
    for (int i = 0; i < kBits; ++i)
      chunk.dwords[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
  } else {
    GPU_UNROLL
    for (int i = 0; i < kBits; ++i) chunk.dwords[i] = load_32_bits(from + 4 * i);
  }
  if constexpr (Chunk::kHasScales) {
    const int size = scale_size(w.scale_type);
    const int shift = 31 - count_leading_zeros(w.group);
    const bool fits = places != Places::Odd;
    GPU_UNROLL
    for (int i = 0; i < Chunk::kScales; ++i) {
      const int index = (column + 16 * i) >> shift;
      chunk.scales[i] = load_scale_bits(row.scales, size, index, fits);
      if constexpr (kKind == Kind::Affine) {
        if (w.zero != Zero::MidCode)
          chunk.biases[i] = load_scale_bits(row.biases, bias_size(w), index, fits);
      }
    }
  }
}

// Two codes next to each other, the first of them even, each as the half 1024 + code.
template <int kBits>
GPU_INLINE std::uint32_t two_codes(const std::uint32_t (&dwords)[kBits], int i) {
  constexpr std::uint32_t k1024 = 0x64006400u;
  if constexpr (kBits == 8) {
    const std::uint32_t byte = static_cast<std::uint32_t>(i % 4);
    return pick_bytes(dwords[i / 4], k1024, 0x5050u | byte | (byte + 1) << 8);
  } else if constexpr (kBits == 4) {
    const std::uint32_t dword = dwords[i / 8], byte = static_cast<std::uint32_t>(i % 8 / 2);
    const std::uint32_t picks = byte | byte << 4 | (byte + 4) << 8 | (byte + 4) << 12;
    return (pick_bytes(dword, dword >> 4, picks) & 0x000F000Fu) | k1024;
  } else {
    const auto code = [&](int k) {
      const int bit = k * kBits, at = bit / 32, shift = bit % 32;
      std::uint32_t bits = dwords[at] >> shift;
      if (shift + kBits > 32) bits |= dwords[at + 1] << (32 - shift);
      return bits & ((1u << kBits) - 1);
    };
    return code(i) | code(i + 1) << 16 | k1024;
  }
}

inline std::uint32_t twice(float x) {
  return to_half2(x, x);
}

// Columns 8 * part .. 8 * part + 7 of a chunk.
template <Kind kKind, int kBits>
GPU_INLINE Quad open_eight(const DeviceWeight& w, const StoredRow& row,
                           const StoredChunk<kKind, kBits>& chunk, int part) {
  std::uint32_t out[4];
  if constexpr (kKind == Kind::Affine) {
    // scale * (code - middle) + offset, where the middle is near the zero of the weights: what is
    // rounded is small.
    const float scale = scale_of_bits(w.scale_type, chunk.scales[0]);
    float middle = 1 << (kBits - 1), offset = 0;
    if (w.zero == Zero::ZeroPoint) {
      middle = static_cast<float>(static_cast<int>(chunk.biases[0]));
    } else if (w.zero == Zero::Bias) {
      const float bias = scale_of_bits(w.scale_type, chunk.biases[0]);
      middle = static_cast<float>(
          to_int(min(static_cast<float>(1 << kBits), max(-bias * inverse(scale), 0.0f))));
      offset = bias + middle * scale;
    }
    const std::uint32_t scales = twice(scale * row.unit), offsets = twice(offset * row.unit),
                        middles = twice(-1024 - middle);
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t codes = two_codes<kBits>(chunk.dwords, 8 * part + 2 * i);
      out[i] = multiply_add_halves(add_halves(codes, middles), scales, offsets);
    }
  } else if constexpr (kKind == Kind::Fp4) {
    const std::uint32_t dword = chunk.dwords[part];
    const std::uint32_t scales =
        twice(scale_of_bits(w.scale_type, chunk.scales[part / 2]) * row.unit);
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto byte = static_cast<std::uint32_t>(i);
      const std::uint32_t codes =
          pick_bytes(dword, dword >> 4, byte | byte << 4 | (byte + 4) << 8 | (byte + 4) << 12);
      // The bits of E2M1 are those of a half that is 2^14 times smaller.
      const std::uint32_t small = (codes & 0x00070007u) << 9 | (codes & 0x00080008u) << 12;
      out[i] = scale_halves(scale_halves(small, 0x74007400u), scales);
    }
  } else if constexpr (kKind == Kind::Fp8Block) {
    const float scale = scale_of_bits(w.scale_type, chunk.scales[0]) * (256 * row.unit);
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int first = 8 * part + 2 * i;
      const auto byte = static_cast<std::uint32_t>(first % 4);
      // The bits of E4M3 are those of a half that is 2^8 times smaller.
      const std::uint32_t high =
          pick_bytes(chunk.dwords[first / 4], 0, 0x0404u | byte << 4 | (byte + 1) << 12);
      const std::uint32_t small = (high & 0x80008000u) | (high & 0x7F007F00u) >> 1;
      out[i] = to_half2(from_half(static_cast<std::uint16_t>(small & 0xFFFFu)) * scale,
                        from_half(static_cast<std::uint16_t>(small >> 16)) * scale);
    }
  } else if constexpr (kKind == Kind::F16) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) out[i] = scale_halves(chunk.dwords[4 * part + i], twice(row.unit));
  } else if constexpr (kKind == Kind::BF16) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t two = chunk.dwords[4 * part + i];
      out[i] = to_half2(float_of(two << 16) * row.unit, float_of(two & 0xFFFF0000u) * row.unit);
    }
  } else {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      out[i] = to_half2(float_of(chunk.dwords[8 * part + 2 * i]) * row.unit,
                        float_of(chunk.dwords[8 * part + 2 * i + 1]) * row.unit);
  }
  return {out[0], out[1], out[2], out[3]};
}

// What those halves leave.
template <Kind kKind, int kBits>
GPU_INLINE Quad rest_of_eight(const DeviceWeight& w, const StoredRow& row,
                              const StoredChunk<kKind, kBits>& chunk, int part) {
  const Quad opened = open_eight(w, row, chunk, part);
  const std::uint32_t halves[4] = {opened.x, opened.y, opened.z, opened.w};
  float scale = 1, offset = 0;
  if constexpr (StoredChunk<kKind, kBits>::kHasScales)
    scale = scale_of_bits(w.scale_type, chunk.scales[kKind == Kind::Fp4 ? part / 2 : 0]);
  if constexpr (kKind == Kind::Affine) {
    if (w.zero == Zero::Bias) offset = scale_of_bits(w.scale_type, chunk.biases[0]);
    if (w.zero == Zero::MidCode) offset = -scale * (1 << (kBits - 1));
    if (w.zero == Zero::ZeroPoint) offset = -scale * static_cast<float>(chunk.biases[0]);
  }
  const auto rest = [&](int i) GPU_LAMBDA {
    const float value = scale * number_of<kKind, kBits>(chunk.dwords, 8 * part + i) + offset;
    const std::uint32_t half = halves[i / 2] >> (16 * (i % 2)) & 0xFFFFu;
    return value * row.unit - from_half(static_cast<std::uint16_t>(half));
  };
  return {to_half2(rest(0), rest(1)), to_half2(rest(2), rest(3)), to_half2(rest(4), rest(5)),
          to_half2(rest(6), rest(7))};
}

// The slow way, for any format.
GPU_INLINE void open_slowly(const DeviceWeight& w, int row, float unit, int column, int n_halves,
                            bool is_rest, std::uint16_t* out) {
  GPU_ROLLED
  for (int i = 0; i < n_halves; ++i) {
    if (column + i >= w.cols) {
      out[i] = 0;
      continue;
    }
    const float value = weight_at(w, row, column + i) * unit;
    const std::uint16_t half = to_half(value);
    out[i] = is_rest ? to_half(value - from_half(half)) : half;
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
