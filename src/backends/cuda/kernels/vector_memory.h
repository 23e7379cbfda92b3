// Few rows of activations in the memory of a block, as products with stored rows read them: formats
// whose numbers are small integers multiply bytes, so activations are rounded to 16 bits in each
// chunk of 32 columns, as two digits of 8 (kDigits). Others, and exact products, multiply floats.
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/matvec.h"
#include "backends/cuda/kernels/operands.h"
#include "backends/cuda/kernels/row_norm.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// How a thread reads a chunk of a format: `kBits` dwords for its 32 numbers.
template <Kind kOfKind, int kOfBits, bool kUsesDigits, bool kIsUsual = false>
struct ChunkFormat {
  // Codes and activations lie at multiples of 16 bytes, scales and biases have 16 bits and belong
  // to a power of two of columns.
  static constexpr bool kUsual = kIsUsual;
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

// Digits of four numbers as bytes: the lowest of each.
GPU_INLINE std::uint32_t pack_bytes(int a, int b, int c, int d) {
  const std::uint32_t first =
      pick_bytes(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b), 0x0040u);
  const std::uint32_t second =
      pick_bytes(static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(d), 0x0040u);
  return pick_bytes(first, second, 0x5410u);
}

// Eight columns of a row.
template <bool kIsAligned>
GPU_INLINE void load_eight(const float* x, float (&values)[8]) {
  if constexpr (kIsAligned) {
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
GPU_INLINE void put_row(const VectorMemory& memory, int row, int n_chunks, const Load& load) {
  static_assert(F::kShifts && (F::kBits == 4 || F::kBits == 8));
  const int n_eights = n_chunks * 4;
  for (int chunk = n_chunks + thread(); chunk < memory.n_chunks; chunk += n_threads()) {
    float* scales = memory.scales + 2 * (row * memory.n_chunks + chunk);
    scales[0] = scales[1] = 0;  // what is multiplied there is no activation
  }
  GPU_ROLLED
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
    const float per_unit = top > 0 ? 32512.0f * inverse(top) : 0.0f;
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
    const float unit = factor * (top <= 3.4e38f ? top * (1.0f / 32512.0f) : top - top);
    float* scales = memory.scales + 2 * (row * memory.n_chunks + chunk);
    scales[0] = unit;
    scales[1] = unit * static_cast<float>(sum);
  }
}

// The block's memory, from an offset on, for rows of so many chunks.
template <class F>
GPU_INLINE VectorMemory vector_memory(int n_chunks, int n_rows, int offset = 0) {
  VectorMemory memory;
  if (F::kUsual) n_chunks = (n_chunks + 2 * kWarp - 1) / (2 * kWarp) * (2 * kWarp);
  memory.n_chunks = n_chunks;
  memory.row_bytes = value_bytes<F>(n_chunks);
  memory.values = dynamic_shared() + offset;
  memory.scales = reinterpret_cast<float*>(memory.values + n_rows * memory.row_bytes);
  return memory;
}

template <class F>
inline constexpr bool kTakesEights = F::kDigits&& F::kShifts&& F::kBits >= 4;  // put_row()

// Rows of activations, normed on the way where there is a norm: one block keeps what it yields.
template <class F>
GPU_INLINE VectorMemory bring_activations(const float* x, std::int64_t x_stride, int n_rows,
                                          int n_cols, const VectorNorm& norm) {
  const VectorMemory memory = vector_memory<F>(n_cols / kVectorColumns, n_rows);
  if constexpr (kTakesEights<F>) {
    GPU_SHARED float sums[kMostVectorRows][kWarp];
    GPU_ROLLED
    for (int row = 0; row < n_rows; ++row) {
      const float* from = x + row * x_stride;
      // A thread has its eight columns at hand, where there are no more.
      const bool is_held = n_cols <= 8 * n_threads();
      float held[8] = {}, inverse = 1;
      if (is_held && 8 * thread() < n_cols) load_eight<F::kUsual>(from + 8 * thread(), held);
      if (norm.out != nullptr) {
        const float squares = is_held ? squares_of_eight(held, 0) : squares_of_thread(from, n_cols);
        inverse = inverse_length(squares, n_cols, norm.eps, sums[row]);
      }
      put_row<F>(memory, row, n_cols / kVectorColumns,
                 [&](int eight, float(&values)[8]) GPU_LAMBDA {
                   if (is_held) {
                     GPU_UNROLL
                     for (int i = 0; i < 8; ++i) values[i] = held[i];
                   } else {
                     load_eight<F::kUsual>(from + 8 * eight, values);
                   }
                   if (norm.out != nullptr) {
                     float weights[8];
                     load_eight<false>(norm.weight + 8 * eight, weights);
                     GPU_UNROLL
                     for (int i = 0; i < 8; ++i) values[i] = values[i] * inverse * weights[i];
                     if (block_x() == 0) {
                       GPU_UNROLL
                       for (int i = 0; i < 8; ++i)
                         norm.out[row * norm.out_stride + 8 * eight + i] = values[i];
                     }
                   }
                   return 1.0f;
                 });
    }
    return memory;
  }
  constexpr int kAhead = 4;  // chunks of a warp that are on their way together
  const int n_warps = n_threads() / kWarp;
  GPU_ROLLED
  for (int row = 0; row < n_rows; ++row) {
    GPU_ROLLED
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

}  // namespace moeflux::gpu
GPU_CODE_END
