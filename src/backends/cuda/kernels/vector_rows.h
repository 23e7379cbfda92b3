// Rows of a stored matrix times few rows of activations.
//
// A block brings the activations into its memory once. Then each warp takes some rows of weights;
// a thread of it takes every 32nd chunk of 32 columns of each, reads it as it is stored and
// multiplies it. Formats whose numbers are small integers multiply bytes: activations are rounded
// to 16 bits in each chunk, as two digits of 8 (kDigits). Others, and exact products, multiply
// floats.
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/matvec.h"
#include "backends/cuda/kernels/row_norm.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// How a thread reads a chunk of a format: `kBits` dwords for its 32 numbers.
template <Kind kOfKind, int kOfBits, bool kUsesDigits>
struct ChunkFormat {
  static constexpr Kind kKind = kOfKind;
  static constexpr int kBits = kOfBits;
  static constexpr bool kDigits = kUsesDigits;
  // Numbers of a dword come out as bytes by shifts: byte k of operand j of dword d is number
  // d * kPerDword + j + kStep * k.
  static constexpr bool kShifts = kKind == Kind::Affine && (kBits == 2 || kBits == 4 || kBits == 8);
  static constexpr int kPerDword = 32 / kBits;
  static constexpr int kStep = kShifts ? kPerDword / 4 : 1;
};

// Which column of a chunk byte `byte` of its operands is (operand byte / 4).
template <class F>
GPU_INLINE int column_of_byte(int byte) {
  if constexpr (!F::kShifts) return byte;
  const int operand = byte / 4, k = byte % 4;
  return operand / F::kStep * F::kPerDword + operand % F::kStep + F::kStep * k;
}

// The activations in the block's memory. Of each row, for the chunks in turn: as digits [step][4]
// [lane][16 bytes] (high ones of 16 bytes, high, low, low), then scale and sum of each chunk; as
// floats [step][8][lane][16 bytes].
struct VectorMemory {
  unsigned char* values;
  float* scales;  // [row][chunk]: scale, sum
  std::int64_t row_bytes;
  int n_chunks;
};

template <class F>
GPU_INLINE std::int64_t value_bytes(int n_chunks) {
  const std::int64_t steps = (n_chunks + kWarp - 1) / kWarp;
  return steps * kWarp * (F::kDigits ? 64 : 128);
}

// A chunk of a row, of which each thread of a warp has a value.
template <class F>
GPU_INLINE void put_chunk(const VectorMemory& memory, int row, int chunk, float value) {
  unsigned char* values = memory.values + row * memory.row_bytes;
  float* scales = memory.scales + 2 * (row * memory.n_chunks + chunk);
  const int step = chunk / kWarp, owner = chunk % kWarp;
  if constexpr (F::kDigits) {
    const float top = warp_max(abs(value));
    const float unit = top / 32512.0f, per_unit = top > 0 ? 32512.0f / top : 0.0f;
    const int digits = to_int(value * per_unit);
    const int high = (digits + 128) >> 8, low = digits - high * 256;
    unsigned char* begin = values + (step * 4 * kWarp + owner) * 16;
    const int at = lane() / 16 * kWarp * 16 + lane() % 16;
    begin[at] = static_cast<unsigned char>(high);
    begin[at + 2 * kWarp * 16] = static_cast<unsigned char>(low);
    const float sum = warp_sum(static_cast<float>(digits));
    if (lane() == 0) {
      // Not a number stays one: what it is multiplied with is 0.
      const float all = top <= 3.4e38f ? unit : top - top;
      scales[0] = all;
      scales[1] = all * sum;
    }
  } else {
    auto* begin = reinterpret_cast<float*>(values + (step * 8 * kWarp + owner) * 16);
    begin[lane() / 4 * kWarp * 4 + lane() % 4] = value;
    const float sum = warp_sum(value);
    if (lane() == 0) {
      scales[0] = 1;
      scales[1] = sum;
    }
  }
}

// Digits of four numbers as bytes.
GPU_INLINE std::uint32_t pack_bytes(int a, int b, int c, int d) {
  return (static_cast<std::uint32_t>(a) & 0xFFu) | (static_cast<std::uint32_t>(b) & 0xFFu) << 8 |
         (static_cast<std::uint32_t>(c) & 0xFFu) << 16 | static_cast<std::uint32_t>(d) << 24;
}

// Eight columns of a row.
GPU_INLINE void load_eight(const float* x, float (&values)[8]) {
  if (reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
    const auto* quads = reinterpret_cast<const FloatQuad*>(x);
    const FloatQuad a = quads[0], b = quads[1];
    values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
    values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
  } else {
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) values[i] = x[i];
  }
}

// Columns of a row, in eights, as digits for codes of 4 or 8 bits: four threads of a warp a chunk.
// `load(eight, values)` returns what the sums of their chunk are multiplied with.
template <class F, class Load>
GPU_INLINE void put_row(const VectorMemory& memory, int row, const Load& load) {
  static_assert(F::kShifts && (F::kBits == 4 || F::kBits == 8));
  const int n_eights = memory.n_chunks * 4;
  for (int base = warp() * kWarp; base < n_eights; base += n_threads()) {
    const int eight = base + lane();
    float values[8] = {}, factor = 1;
    if (eight < n_eights) factor = load(eight, values);
    float top = 0;
    bool is_finite = true;
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) {
      top = max(top, abs(values[i]));
      is_finite = is_finite && abs(values[i]) <= 3.4e38f;
    }
    if (!is_finite) top = float_of(0x7F800000u);
    top = max(top, shuffle_xor(top, 1));
    top = max(top, shuffle_xor(top, 2));
    const float per_unit = top > 0 ? 32512.0f / top : 0.0f;
    int high[8], low[8], sum = 0;
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int digits = to_int(values[i] * per_unit);
      high[i] = (digits + 128) >> 8;
      low[i] = digits - high[i] * 256;
      sum += digits;
    }
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    if (eight >= n_eights) continue;
    const int chunk = eight / 4, part = eight % 4, step = chunk / kWarp, owner = chunk % kWarp;
    unsigned char* to = memory.values + row * memory.row_bytes + (step * 4 * kWarp + owner) * 16 +
                        part / 2 * kWarp * 16 + part % 2 * 8;
    constexpr int kNext = F::kBits == 4 ? 2 : 1;  // from one byte of an operand to the next
    constexpr int kSecond = F::kBits == 4 ? 1 : 4;
    const auto pair = [&](const int(&digits)[8]) GPU_LAMBDA {
      return Pair{pack_bytes(digits[0], digits[kNext], digits[2 * kNext], digits[3 * kNext]),
                  pack_bytes(digits[kSecond], digits[kSecond + kNext], digits[kSecond + 2 * kNext],
                             digits[kSecond + 3 * kNext])};
    };
    *reinterpret_cast<Pair*>(to) = pair(high);
    *reinterpret_cast<Pair*>(to + 2 * kWarp * 16) = pair(low);
    if (part != 0) continue;
    // Not a number stays one: what it is multiplied with is 0.
    const float unit = factor * (top <= 3.4e38f ? top / 32512.0f : top - top);
    float* scales = memory.scales + 2 * (row * memory.n_chunks + chunk);
    scales[0] = unit;
    scales[1] = unit * static_cast<float>(sum);
  }
}

// The block's memory for rows of so many chunks.
template <class F>
GPU_INLINE VectorMemory vector_memory(int n_chunks, int n_rows) {
  VectorMemory memory;
  memory.n_chunks = n_chunks;
  memory.row_bytes = value_bytes<F>(n_chunks);
  memory.values = dynamic_shared();
  memory.scales = reinterpret_cast<float*>(memory.values + n_rows * memory.row_bytes);
  return memory;
}

template <class F>
inline constexpr bool kTakesEights = F::kDigits && F::kShifts && F::kBits >= 4;

template <class F>
GPU_INLINE VectorMemory bring_activations(const float* x, std::int64_t x_stride, int n_rows,
                                          int n_cols) {
  const VectorMemory memory = vector_memory<F>(n_cols / kVectorColumns, n_rows);
  if constexpr (kTakesEights<F>) {
    for (int row = 0; row < n_rows; ++row) {
      put_row<F>(memory, row, [&](int eight, float(&values)[8]) GPU_LAMBDA {
        load_eight(x + row * x_stride + 8 * eight, values);
        return 1.0f;
      });
    }
    return memory;
  }
  constexpr int kAhead = 8;  // chunks of a warp that are on their way together
  const int n_warps = n_threads() / kWarp;
  for (int row = 0; row < n_rows; ++row) {
    for (int first = warp(); first < memory.n_chunks; first += kAhead * n_warps) {
      float of_chunks[kAhead];
      GPU_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int chunk = first + i * n_warps;
        of_chunks[i] = chunk < memory.n_chunks
                           ? x[row * x_stride + chunk * kVectorColumns +
                               (F::kDigits ? column_of_byte<F>(lane()) : lane())]
                           : 0.0f;
      }
      GPU_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (first + i * n_warps < memory.n_chunks)
          put_chunk<F>(memory, row, first + i * n_warps, of_chunks[i]);
      }
    }
  }
  return memory;
}

// The same of rows that are normed on the way. One block keeps them.
template <class F>
GPU_INLINE VectorMemory bring_normed(const float* x, std::int64_t x_stride, int n_rows, int n_cols,
                                     const VectorNorm& norm) {
  GPU_SHARED float sums[kMostVectorRows][kWarp];
  const VectorMemory memory = vector_memory<F>(n_cols / kVectorColumns, n_rows);
  for (int row = 0; row < n_rows; ++row) {
    const float* from = x + row * x_stride;
    const float inverse = inverse_length(from, n_cols, norm.eps, sums[row]);
    put_row<F>(memory, row, [&](int eight, float(&values)[8]) GPU_LAMBDA {
      float weights[8];
      load_eight(from + 8 * eight, values);
      load_eight(norm.weight + 8 * eight, weights);
      GPU_UNROLL
      for (int i = 0; i < 8; ++i) values[i] = values[i] * inverse * weights[i];
      if (block_x() == 0) {
        GPU_UNROLL
        for (int i = 0; i < 8; ++i) norm.out[row * norm.out_stride + 8 * eight + i] = values[i];
      }
      return 1.0f;
    });
  }
  return memory;
}

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

// Scale and offset of a chunk for numbers as operand_of() has them.
template <class F>
GPU_INLINE ScaleAndOffset chunk_scale(const DeviceWeight& w, int row, int chunk) {
  ScaleAndOffset s = aligned_scale_at<F::kKind>(w, row, chunk * kVectorColumns);
  if constexpr (F::kDigits && F::kKind == Kind::Affine && F::kBits == 8) s.offset += 128 * s.scale;
  if constexpr (F::kDigits && F::kKind == Kind::Fp4) s.scale *= 0.5f;
  return s;
}

// sums[r][n] += weights of rows[r] in a chunk, already read, times row n of the activations.
template <class F, int kN, int kR>
GPU_INLINE void multiply_chunk(const DeviceWeight& w, const int (&rows)[kR],
                               const std::uint32_t (&dwords)[kR][F::kBits],
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
          const float scale =
              half == 0 || w.group % kVectorColumns == 0
                  ? scales[r].scale
                  : 0.5f *
                        aligned_scale_at<F::kKind>(w, rows[r], chunk * kVectorColumns + 16).scale;
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
        if (i == 3 && w.group % kVectorColumns != 0) {  // a group of 16 ends
          GPU_UNROLL
          for (int r = 0; r < kR; ++r) {
            const float other =
                aligned_scale_at<F::kKind>(w, rows[r], chunk * kVectorColumns + 16).scale;
            GPU_UNROLL
            for (int n = 0; n < kN; ++n) {
              sums[r][n] += units[r] * products[r][n];
              products[r][n] = 0;
            }
            units[r] = other;
          }
        }
      }
    }
    GPU_UNROLL
    for (int n = 0; n < kN; ++n) {
      const float sum = memory.scales[2 * (n * memory.n_chunks + chunk) + 1];
      GPU_UNROLL
      for (int r = 0; r < kR; ++r)
        sums[r][n] += units[r] * products[r][n] + scales[r].offset * sum;
    }
  }
}

// A thread's chunks of some rows of a matrix, as they are stored: chunks first, first + kWarp, ...
template <class F, int kR, int kSteps>
struct Chunks {
  std::uint32_t dwords[kSteps][kR][F::kBits];
  ScaleAndOffset scales[kSteps][kR];

  GPU_INLINE void load(const DeviceWeight& w, const int (&rows)[kR], int first) {
    const int n_chunks = w.cols / kVectorColumns;
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp;
      if (chunk >= n_chunks) continue;
      GPU_UNROLL
      for (int r = 0; r < kR; ++r)
        load_dwords<F::kBits>(w.data + rows[r] * w.row_bytes + std::int64_t{chunk} * 4 * F::kBits,
                              dwords[s][r]);
    }
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp;
      if (chunk >= n_chunks) continue;
      GPU_UNROLL
      for (int r = 0; r < kR; ++r) scales[s][r] = chunk_scale<F>(w, rows[r], chunk);
    }
  }

  template <int kN>
  GPU_INLINE void multiply(const DeviceWeight& w, const int (&rows)[kR], int first,
                           const VectorMemory& memory, float (&sums)[kR][kN]) const {
    GPU_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int chunk = first + s * kWarp;
      if (chunk < memory.n_chunks)
        multiply_chunk<F, kN, kR>(w, rows, dwords[s], scales[s], chunk, memory, sums);
    }
  }
};

// Threads of a warp that share a row of weights: a power of two.
GPU_INLINE int sharers(int n_chunks) {
  int n = 1;
  while (n < n_chunks && n < kWarp) n *= 2;
  return n;
}

// Rows of weights that a warp takes.
template <int kR>
GPU_INLINE int rows_of_warp(int n_chunks) {
  return kR * (kWarp / sharers(n_chunks));
}

// The warp's rows, of one matrix or of two of the same shape, times the activations: for each of
// its rows `emit(row, n, sum, sum of the second matrix)` by one thread. `before` runs when the
// first weights are on their way, and brings the activations.
template <class F, int kN, int kR, int kSteps, bool kTwo, class Before, class Emit>
GPU_INLINE void multiply_rows(const DeviceWeight& a, const DeviceWeight& b, int first_row,
                              int n_rows, const Before& before, const Emit& emit) {
  const int n_chunks = a.cols / kVectorColumns, n_sharers = sharers(n_chunks);
  const int part = lane() % n_sharers, group = lane() / n_sharers;
  int rows[kR];
  GPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    const int row = first_row + group * kR + r;
    rows[r] = row < a.rows ? row : a.rows - 1;
  }
  Chunks<F, kR, kSteps> of_a, of_b;
  of_a.load(a, rows, part);
  if constexpr (kTwo) of_b.load(b, rows, part);
  const VectorMemory memory = before();
  sync();
  float sums_a[kR][kN] = {}, sums_b[kR][kN] = {};
  for (int first = part; first < n_chunks; first += kSteps * kWarp) {
    if (first != part) {
      of_a.load(a, rows, first);
      if constexpr (kTwo) of_b.load(b, rows, first);
    }
    of_a.multiply(a, rows, first, memory, sums_a);
    if constexpr (kTwo) of_b.multiply(b, rows, first, memory, sums_b);
  }
  GPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    GPU_UNROLL
    for (int n = 0; n < kN; ++n) {
      float sum = sums_a[r][n], second = sums_b[r][n];
      for (int mask = n_sharers / 2; mask > 0; mask /= 2) {
        sum += shuffle_xor(sum, mask);
        if constexpr (kTwo) second += shuffle_xor(second, mask);
      }
      const int row = first_row + group * kR + r;
      if (part == 0 && row < a.rows && n < n_rows) emit(row, n, sum, second);
    }
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
