// What a thread has of some rows of a stored matrix: chunks of 32 columns, as they are stored, and
// their products with activations (vector_memory.h).
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/vector_memory.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// E2M1 codes as bytes of twice their value: 0 1 2 3 4 6 8 12 and their negatives.
GPU_INLINE int e2m1_bytes(std::uint32_t nibbles) {  // one in the low half of each byte
  const std::uint32_t magnitudes = nibbles & 0x07070707u;
  // Picks take four bits each: pack the codes of the bytes.
  const std::uint32_t picks = (magnitudes & 0x7u) | (magnitudes >> 4 & 0x70u) |
                              (magnitudes >> 8 & 0x700u) | (magnitudes >> 12 & 0x7000u);
  const std::uint32_t values = pick_bytes(0x03020100u, 0x0C080604u, picks);
  const std::uint32_t signs = nibbles >> 3 & 0x01010101u;
  // -v of a byte: (v ^ 0xFF) + 1; no byte of v is 0 after the sign is dropped of zeros.
  const std::uint32_t masks = signs * 0xFFu;
  const std::uint32_t is_zero =
      ~((values | values >> 1 | values >> 2 | values >> 3)) & 0x01010101u & signs;
  return static_cast<int>((values ^ masks) + signs - (is_zero << 8));
}

// Four numbers of a chunk as signed or unsigned bytes of at most 7 bits, or 8 bits less 128.
template <class F>
GPU_INLINE int operand_of(const std::uint32_t (&dwords)[F::kBits], int operand) {
  if constexpr (F::kKind == Kind::Fp4) {
    const std::uint32_t dword = dwords[operand / 2];
    // Operand 0 of a dword: numbers 0 to 3, spread from nibbles to bytes.
    const std::uint32_t half = operand % 2 == 0 ? dword & 0xFFFFu : dword >> 16;
    const std::uint32_t spread =
        (half & 0xFu) | (half & 0xF0u) << 4 | (half & 0xF00u) << 8 | (half & 0xF000u) << 12;
    return e2m1_bytes(spread);
  } else if constexpr (F::kShifts) {
    constexpr std::uint32_t kOnes = 0x01010101u * ((1u << F::kBits) - 1);
    const std::uint32_t codes =
        dwords[operand / F::kStep] >> (operand % F::kStep * F::kBits) & kOnes;
    return static_cast<int>(F::kBits == 8 ? codes ^ 0x80808080u : codes);
  } else {
    std::uint32_t bytes = 0;
    GPU_UNROLL
    for (int k = 0; k < 4; ++k) {
      const int bit = (4 * operand + k) * F::kBits, at = bit / 32, shift = bit % 32;
      std::uint32_t code = dwords[at] >> shift;
      if (shift + F::kBits > 32) code |= dwords[at + 1 < F::kBits ? at + 1 : at] << (32 - shift);
      bytes |= (code & ((1u << F::kBits) - 1)) << (8 * k);
    }
    return static_cast<int>(bytes);
  }
}

// What a chunk's scales are made from, as it is stored. It is asked for with the codes, and looked
// at when all of them are on their way: who looks at once waits for each.
struct StoredScale {
  std::uint32_t scale, offset;  // of Fp4: the scales of both halves
};

template <class F, int kR, int kScaleBytes>
GPU_INLINE void read_scales(const DeviceWeight& w, const unsigned char* scales,
                            const unsigned char* biases, const int (&rows)[kR], int chunk,
                            StoredScale (&out)[kR]) {
  const auto stored = [](const unsigned char* plane, std::int64_t index) -> std::uint32_t {
    if constexpr (kScaleBytes == 4) return reinterpret_cast<const std::uint32_t*>(plane)[index];
    if constexpr (kScaleBytes == 2) return reinterpret_cast<const std::uint16_t*>(plane)[index];
    return plane[index];
  };
  const int col = chunk * kVectorColumns;
  GPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    if constexpr (F::kKind == Kind::Affine) {
      const int group = F::kUsual ? col >> (31 - count_leading_zeros(w.group)) : group_of(w, col);
      const std::int64_t index = std::int64_t{rows[r]} * w.scales_per_row + group;
      out[r].scale = stored(scales, index);
      if constexpr (F::kUsual) {
        out[r].offset = stored(biases, index);
        continue;
      }
      out[r].offset = w.zero == Zero::Bias        ? stored(biases, index)
                      : w.zero == Zero::ZeroPoint ? biases[index]
                                                  : 0u;
    } else if constexpr (F::kKind == Kind::Fp4) {
      const std::int64_t first = std::int64_t{rows[r]} * w.scales_per_row;
      out[r].scale = stored(scales, first + col / w.group);
      out[r].offset = stored(scales, first + (col + kVectorColumns / 2) / w.group);
    } else if constexpr (F::kKind == Kind::Fp8Block) {
      out[r].scale =
          stored(scales, std::int64_t{(rows[r] + w.block_row0) / w.block_rows} * w.scales_per_row +
                             col / w.group);
    }
  }
}

// Scale and offset of a chunk for numbers as operand_of() has them; of Fp4 the scales of its
// halves.
template <class F>
GPU_INLINE ScaleAndOffset chunk_scale(const DeviceWeight& w, const StoredScale& stored,
                                      float of_all) {
  const auto value = [&](std::uint32_t bits) {
    return w.scale_type == ScaleType::F32    ? float_of(bits)
           : w.scale_type == ScaleType::F16  ? from_half(static_cast<std::uint16_t>(bits))
           : w.scale_type == ScaleType::BF16 ? from_bfloat(static_cast<std::uint16_t>(bits))
           : w.scale_type == ScaleType::E8M0 ? decode_e8m0(bits)
                                             : decode_e4m3(bits);
  };
  if constexpr (F::kKind == Kind::Affine) {
    const auto float_value = [&](std::uint32_t bits) {
      return !F::kUsual && w.scale_type == ScaleType::F32 ? float_of(bits)
             : w.scale_type == ScaleType::F16 ? from_half(static_cast<std::uint16_t>(bits))
                                              : from_bfloat(static_cast<std::uint16_t>(bits));
    };
    ScaleAndOffset s;
    s.scale = float_value(stored.scale);
    if (F::kUsual || w.zero == Zero::Bias) {
      s.offset = float_value(stored.offset);
    } else {
      const int zero =
          w.zero == Zero::MidCode ? 1 << (w.bits - 1) : static_cast<int>(stored.offset);
      s.offset = -s.scale * static_cast<float>(zero);
    }
    if constexpr (F::kDigits && F::kBits == 8) s.offset += 128 * s.scale;
    return s;
  } else if constexpr (F::kKind == Kind::Fp4) {
    const auto scaled = [&](std::uint32_t bits) {
      float scale = value(bits);
      if (w.has_tensor_scale) scale = w.tensor_scale_divides ? scale / of_all : scale * of_all;
      return F::kDigits ? 0.5f * scale : scale;
    };
    return {scaled(stored.scale), scaled(stored.offset)};
  } else if constexpr (F::kKind == Kind::Fp8Block) {
    return {value(stored.scale), 0};
  } else {
    return {1, 0};
  }
}

// sums[r][n] += weights of rows[r] in a chunk, already read, times row n of the activations.
template <class F, int kN, int kR>
GPU_INLINE void multiply_chunk(const std::uint32_t (&dwords)[kR][F::kBits],
                               const ScaleAndOffset (&scales)[kR], int chunk,
                               const VectorMemory& memory, float (&sums)[kR][kN]) {
  const int step = chunk / kWarp, owner = chunk % kWarp;
  if constexpr (F::kDigits) {
    int high[kR][kN] = {}, low[kR][kN] = {};
    constexpr bool kHalves = F::kKind == Kind::Fp4;  // groups of 16 may end within the chunk
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      GPU_UNROLL
      for (int n = 0; n < kN; ++n) {
        const unsigned char* values =
            memory.values + n * memory.row_bytes + (step * 4 * kWarp + owner) * 16;
        const Quad h = *reinterpret_cast<const Quad*>(values + half * kWarp * 16);
        const Quad l = *reinterpret_cast<const Quad*>(values + (2 + half) * kWarp * 16);
        const std::uint32_t highs[4] = {h.x, h.y, h.z, h.w}, lows[4] = {l.x, l.y, l.z, l.w};
        GPU_UNROLL
        for (int r = 0; r < kR; ++r) {
          GPU_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int operand = operand_of<F>(dwords[r], 4 * half + i);
            high[r][n] = dot4(operand, static_cast<int>(highs[i]), high[r][n]);
            low[r][n] = dot4(operand, static_cast<int>(lows[i]), low[r][n]);
          }
        }
      }
      if constexpr (kHalves) {
        GPU_UNROLL
        for (int r = 0; r < kR; ++r) {
          const float scale = half == 0 ? scales[r].scale : scales[r].offset;
          GPU_UNROLL
          for (int n = 0; n < kN; ++n) {
            const float unit = memory.scales[2 * (n * memory.n_chunks + chunk)];
            sums[r][n] += scale * unit * static_cast<float>(high[r][n] * 256 + low[r][n]);
            high[r][n] = low[r][n] = 0;
          }
        }
      }
    }
    if constexpr (!kHalves) {
      GPU_UNROLL
      for (int n = 0; n < kN; ++n) {
        const float unit = memory.scales[2 * (n * memory.n_chunks + chunk)];
        const float sum = memory.scales[2 * (n * memory.n_chunks + chunk) + 1];
        GPU_UNROLL
        for (int r = 0; r < kR; ++r)
          sums[r][n] += scales[r].scale * unit * static_cast<float>(high[r][n] * 256 + low[r][n]) +
                        scales[r].offset * sum;
      }
    }
  } else {
    float products[kR][kN] = {}, units[kR];
    GPU_UNROLL
    for (int r = 0; r < kR; ++r) units[r] = scales[r].scale;
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) {
      GPU_UNROLL
      for (int n = 0; n < kN; ++n) {
        const FloatQuad x = *reinterpret_cast<const FloatQuad*>(
            memory.values + n * memory.row_bytes + (step * 8 * kWarp + i * kWarp + owner) * 16);
        GPU_UNROLL
        for (int r = 0; r < kR; ++r) {
          products[r][n] += number_of<F::kKind, F::kBits>(dwords[r], 4 * i) * x.x;
          products[r][n] += number_of<F::kKind, F::kBits>(dwords[r], 4 * i + 1) * x.y;
          products[r][n] += number_of<F::kKind, F::kBits>(dwords[r], 4 * i + 2) * x.z;
          products[r][n] += number_of<F::kKind, F::kBits>(dwords[r], 4 * i + 3) * x.w;
        }
      }
      if constexpr (F::kKind == Kind::Fp4) {
        if (i == 3) {  // groups of 16 end here
          GPU_UNROLL
          for (int r = 0; r < kR; ++r) {
            GPU_UNROLL
            for (int n = 0; n < kN; ++n) {
              sums[r][n] += units[r] * products[r][n];
              products[r][n] = 0;
            }
            units[r] = scales[r].offset;
          }
        }
      }
    }
    GPU_UNROLL
    for (int n = 0; n < kN; ++n) {
      const float sum = memory.scales[2 * (n * memory.n_chunks + chunk) + 1];
      GPU_UNROLL
      for (int r = 0; r < kR; ++r)
        sums[r][n] +=
            units[r] * products[r][n] + (F::kKind == Kind::Fp4 ? 0.0f : scales[r].offset * sum);
    }
  }
}

template <bool kValue>
struct Says {
  static constexpr bool kSays = kValue;
};
template <int kValue>
struct ScaleBytes {
  static constexpr int kBytes = kValue;
};

// Bytes of a stored scale.
inline int scale_bytes(const DeviceWeight& w) {
  return w.scale_type == ScaleType::F32                                      ? 4
         : w.scale_type == ScaleType::F16 || w.scale_type == ScaleType::BF16 ? 2
                                                                             : 1;
}

// A thread's chunks of some rows of matrices of one format, as they are stored: chunks first,
// first + kWarp, ... of `n_chunks`. `place(chunk)` says where: planes, and the chunk there.
template <class F, int kR, int kSteps>
struct Chunks {
  std::uint32_t dwords[kSteps][kR][F::kBits];
  StoredScale scales[kSteps][kR];

  struct Place {
    FoundPlanes planes;
    int chunk;  // -1: there is none
  };
  template <class PlaceOf>
  GPU_INLINE void load(const DeviceWeight& w, const int (&rows)[kR], int first, int n_chunks,
                       const PlaceOf& place) {
    Place places[kSteps];
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp;
      places[s] = chunk < n_chunks ? place(chunk) : Place{{nullptr, nullptr, nullptr}, -1};
    }
    const auto read_codes = [&](auto in_quads) GPU_LAMBDA {
      GPU_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        if (places[s].chunk < 0) continue;
        GPU_UNROLL
        for (int r = 0; r < kR; ++r) {
          const unsigned char* at = places[s].planes.data + rows[r] * w.row_bytes +
                                    std::int64_t{places[s].chunk} * 4 * F::kBits;
          if constexpr (decltype(in_quads)::kSays) {
            GPU_UNROLL
            for (int i = 0; i < F::kBits / 4; ++i) {
              const Quad quad = reinterpret_cast<const Quad*>(at)[i];
              dwords[s][r][4 * i] = quad.x;
              dwords[s][r][4 * i + 1] = quad.y;
              dwords[s][r][4 * i + 2] = quad.z;
              dwords[s][r][4 * i + 3] = quad.w;
            }
          } else {
            GPU_UNROLL
            for (int i = 0; i < F::kBits; ++i)
              dwords[s][r][i] = reinterpret_cast<const std::uint32_t*>(at)[i];
          }
        }
      }
    };
    bool in_quads = w.row_bytes % 16 == 0;
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s)
      in_quads = in_quads && reinterpret_cast<std::uintptr_t>(places[s].planes.data) % 16 == 0;
    if constexpr (F::kUsual) {
      read_codes(Says<true>());
    } else if constexpr (F::kBits % 4 == 0) {
      if (in_quads)
        read_codes(Says<true>());
      else
        read_codes(Says<false>());
    } else {
      read_codes(Says<false>());
    }
    const auto read_all_scales = [&](auto bytes) GPU_LAMBDA {
      GPU_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        if (places[s].chunk >= 0)
          read_scales<F, kR, decltype(bytes)::kBytes>(w, places[s].planes.scales,
                                                      places[s].planes.biases, rows,
                                                      places[s].chunk, scales[s]);
      }
    };
    if constexpr (F::kUsual) {
      read_all_scales(ScaleBytes<2>());
    } else if constexpr (F::kKind == Kind::Affine || F::kKind == Kind::Fp8Block ||
                         F::kKind == Kind::Fp4) {
      const int bytes = scale_bytes(w);
      if (F::kKind != Kind::Fp4 && bytes == 2)
        read_all_scales(ScaleBytes<2>());
      else if (F::kKind != Kind::Fp4 && bytes == 4)
        read_all_scales(ScaleBytes<4>());
      else
        read_all_scales(ScaleBytes<1>());
    }
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {  // of what is not there: zeros
      if (places[s].chunk >= 0) continue;
      GPU_UNROLL
      for (int r = 0; r < kR; ++r) {
        GPU_UNROLL
        for (int i = 0; i < F::kBits; ++i) dwords[s][r][i] = 0;
        scales[s][r] = {0, 0};
      }
    }
  }
  GPU_INLINE void load(const DeviceWeight& w, const int (&rows)[kR], int first) {
    load(w, rows, first, w.cols / kVectorColumns, [&](int chunk) GPU_LAMBDA {
      return Place{{w.data, w.scales, w.biases}, chunk};
    });
  }

  // `of_all`: the scale of the whole matrix, where it has one (tensor_scale()).
  template <int kN>
  GPU_INLINE void multiply(const DeviceWeight& w, int first, float of_all,
                           const VectorMemory& memory, float (&sums)[kR][kN]) const {
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp;
      if (chunk >= memory.n_chunks) continue;
      ScaleAndOffset values[kR];
      GPU_UNROLL
      for (int r = 0; r < kR; ++r) values[r] = chunk_scale<F>(w, scales[s][r], of_all);
      multiply_chunk<F, kN, kR>(dwords[s], values, chunk, memory, sums);
    }
  }
};

template <class F>
GPU_INLINE float tensor_scale(const DeviceWeight& w) {
  if constexpr (F::kKind == Kind::Fp4) {
    if (w.has_tensor_scale) return *reinterpret_cast<const float*>(w.biases);
  }
  return 1;
}
template <class F, int kSteps>
struct UsualChunks;
template <class F, int kSteps, bool kUsual = F::kUsual>
struct ChunksOf {
  using Type = Chunks<F, 1, kSteps>;
};
template <class F, int kSteps>
struct ChunksOf<F, kSteps, true> {
  using Type = UsualChunks<F, kSteps>;
};

// Rows of weights in usual places: of each lane's chunks the codes and scales.
template <class F, int kSteps>
struct UsualChunks {
  static constexpr int kQuads = F::kBits / 4;  // of a chunk
  Quad codes[kSteps][kQuads];
  std::uint32_t scales[kSteps], biases[kSteps];

  // Beyond the last chunk that one again: activations have zeros there.
  GPU_INLINE void load(const DeviceWeight& w, int row, int first, int last, int group_shift) {
    const unsigned char* codes_of_row = w.data + std::int64_t{row} * static_cast<int>(w.row_bytes);
    const std::int64_t of_row = std::int64_t{row} * w.scales_per_row;
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp < last ? first + s * kWarp : last;
      GPU_UNROLL
      for (int i = 0; i < kQuads; ++i)
        codes[s][i] = load_constants(codes_of_row + (chunk * kQuads + i) * 16);
    }
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp < last ? first + s * kWarp : last;
      const std::int64_t index = of_row + (chunk >> group_shift);
      scales[s] = load_16_constant_bits(w.scales + 2 * index);
      biases[s] = load_16_constant_bits(w.biases + 2 * index);
    }
  }

  // values: of this lane's first chunk; units: scale and sum of it.
  template <int kN>
  GPU_INLINE void multiply(bool is_half, const unsigned char* values, std::int64_t row_bytes,
                           const float* units, int units_of_row, float (&sums)[kN]) const {
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      float scale = from_bfloat(static_cast<std::uint16_t>(scales[s]));
      float offset = from_bfloat(static_cast<std::uint16_t>(biases[s]));
      if (is_half) {
        scale = from_half(static_cast<std::uint16_t>(scales[s]));
        offset = from_half(static_cast<std::uint16_t>(biases[s]));
      }
      if constexpr (F::kBits == 8) offset += 128 * scale;
      int high[kN] = {}, low[kN] = {};
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        GPU_UNROLL
        for (int n = 0; n < kN; ++n) {
          const unsigned char* at = values + n * row_bytes + s * kStepBytes + half * kWarp * 16;
          const Quad h = *reinterpret_cast<const Quad*>(at);
          const Quad l = *reinterpret_cast<const Quad*>(at + 2 * kWarp * 16);
          const std::uint32_t highs[4] = {h.x, h.y, h.z, h.w}, lows[4] = {l.x, l.y, l.z, l.w};
          GPU_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int operand = operand_at(s, 4 * half + i);
            high[n] = dot4(operand, static_cast<int>(highs[i]), high[n]);
            low[n] = dot4(operand, static_cast<int>(lows[i]), low[n]);
          }
        }
      }
      GPU_UNROLL
      for (int n = 0; n < kN; ++n) {
        const FloatPair unit =
            *reinterpret_cast<const FloatPair*>(units + n * units_of_row + 2 * s * kWarp);
        sums[n] += scale * unit.x * static_cast<float>(high[n] * 256 + low[n]) + offset * unit.y;
      }
    }
  }

 private:
  static constexpr int kStepBytes = 4 * kWarp * 16;

  // operand_of() of these codes.
  GPU_INLINE int operand_at(int s, int operand) const {
    const Quad quad = codes[s][F::kBits == 4 ? 0 : operand / 4];
    const int dword = F::kBits == 4 ? operand / 2 : operand % 4;
    const std::uint32_t bits = dword == 0   ? quad.x
                               : dword == 1 ? quad.y
                               : dword == 2 ? quad.z
                                            : quad.w;
    return F::kBits == 4 ? static_cast<int>(bits >> (operand % 2 * 4) & 0x0F0F0F0Fu)
                         : static_cast<int>(bits ^ 0x80808080u);
  }
};

}  // namespace moeflux::gpu
GPU_CODE_END
