#include "quant/repack.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/codec.h"

namespace moeflux {
namespace {

std::int64_t groups_of(std::int64_t cols, std::int64_t group) {
  return (cols + group - 1) / group;
}

std::int64_t dwords_of(std::int64_t codes, int bits) {
  return (codes * bits + 31) / 32;
}

std::uint32_t load_dword(const std::byte* at, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, at + index * 4, sizeof word);
  return word;
}

// Where the code of row j of the eight of a dword lies.
constexpr int kAwqShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

// Rows that are written together, so that what is read across them comes in whole lines.
constexpr std::int64_t kRowsAtOnce = 32;

class Repacker {
 public:
  Repacker(const Repack& how, const StoredPlanes& from, const WeightView& to)
      : how_(how),
        from_(from),
        to_(to),
        format_(to.format),
        scale_size_(static_cast<std::int64_t>(dtype_size(format_.scale_dtype))),
        n_groups_(scales_per_row(format_, to.cols)),
        n_stored_groups_(how.stored_group > 0 ? groups_of(to.cols, how.stored_group) : 0) {}

  bool run(std::int64_t begin, std::int64_t end) {
    stored_.reserve(kRowsAtOnce);
    for (std::int64_t first = begin; first < end; first += kRowsAtOnce) {
      first_ = first;
      find_rows(first, std::min(first + kRowsAtOnce, end));
      write_block();
    }
    return zeros_fit_;
  }

 private:
  std::int64_t n() const { return std::ssize(stored_); }
  std::int64_t stored(std::int64_t i) const { return stored_[static_cast<std::size_t>(i)]; }
  static std::byte* writable(const std::byte* plane) {
    return const_cast<std::byte*>(plane);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
  std::byte* data(std::int64_t i) const {
    return writable(to_.data) + (first_ + i) * data_row_bytes(format_, to_.cols);
  }
  std::byte* scale(std::int64_t i, std::int64_t g) const {
    return writable(to_.scales) + ((first_ + i) * n_groups_ + g) * scale_size_;
  }
  std::byte* zero(std::int64_t i, std::int64_t g) const {
    return writable(to_.biases) + (first_ + i) * n_groups_ + g;
  }
  // The stored group that group g is part of.
  std::int64_t stored_group(std::int64_t g) const { return g * format_.group / how_.stored_group; }

  // The stored rows behind rows [begin, end).
  void find_rows(std::int64_t begin, std::int64_t end) {
    stored_.clear();
    std::int64_t before = 0;
    for (const RowRun& run : how_.rows) {
      const std::int64_t n_rows = run.take * run.count;
      for (std::int64_t i = std::max(begin - before, std::int64_t{0});
           i < std::min(end - before, n_rows); ++i)
        stored_.push_back(run.first + i / run.take * run.stride + i % run.take);
      before += n_rows;
    }
    MOEFLUX_ASSERT(n() == end - begin);
  }

  void write_block() {
    switch (how_.packing) {
      case Packing::Rows:
        copy_rows();
        copy_scales_of_rows();
        copy_biases_of_rows();
        return;
      case Packing::Transposed:
        return transpose();
      case Packing::Gptq:
        transpose_dwords();
        if (format_.zero == AffineZero::Bias) return write_biases();
        spread([&](std::int64_t row, std::int64_t g) { return g * how_.stored_rows + row; });
        unpack_zeros([&](std::int64_t row, std::int64_t g) { return gptq_zero(row, g); });
        return;
      case Packing::Awq:
        unpack_awq();
        spread([&](std::int64_t row, std::int64_t g) { return g * how_.stored_rows + row; });
        unpack_zeros([&](std::int64_t row, std::int64_t g) {
          return load_dword(from_.biases, g * (how_.stored_rows / 8) + row / 8) >>
                     kAwqShift[row % 8] &
                 15u;
        });
        return;
      case Packing::PackedRows:
        copy_rows();
        spread_rows();
        if (format_.zero == AffineZero::ZeroPoint) {
          unpack_zeros([&](std::int64_t row, std::int64_t g) {
            const std::int64_t per_dword = 32 / format_.bits;
            const std::uint32_t word =
                load_dword(from_.biases, row / per_dword * n_stored_groups_ + g);
            return word >> (row % per_dword * format_.bits) & code_mask();
          });
        }
        return;
      case Packing::SignedBytes:
        copy_signed();
        spread_rows();
        if (format_.zero == AffineZero::ZeroPoint) {
          unpack_zeros([&](std::int64_t row, std::int64_t g) {
            const std::int64_t at = how_.has_one_scale ? 0 : row * n_stored_groups_ + g;
            return std::to_integer<std::uint32_t>(from_.biases[at] ^ std::byte{0x80});
          });
        }
        return;
      case Packing::Nvfp4Blocks:
        unpack_nvfp4();
        return copy_biases_of_rows();
    }
  }

  std::uint32_t code_mask() const { return (1u << format_.bits) - 1; }

  // scale * code + bias is scale * (code - zero point) without rounding: both products and their
  // sum have far less than 24 bits.
  void write_biases() {
    for (std::int64_t i = 0; i < n(); ++i) {
      for (std::int64_t g = 0; g < n_groups_; ++g) {
        const std::int64_t from = stored_group(g);
        float scale_of = 0;
        const std::int64_t at = from * how_.stored_rows + stored(i);
        decode_floats(
            how_.stored_scale_dtype,
            from_.scales + at * static_cast<std::int64_t>(dtype_size(how_.stored_scale_dtype)), 1,
            &scale_of);
        const float bias = -scale_of * static_cast<float>(gptq_zero(stored(i), from));
        std::memcpy(scale(i, g), &scale_of, sizeof scale_of);
        std::memcpy(writable(to_.biases) + ((first_ + i) * n_groups_ + g) * 4, &bias, sizeof bias);
      }
    }
  }

  std::uint32_t gptq_zero(std::int64_t row, std::int64_t group) const {
    const std::int64_t first_dword = group * dwords_of(how_.stored_rows, format_.bits);
    const std::int64_t per_dword = 32 / format_.bits;
    return (load_dword(from_.biases, first_dword + row / per_dword) >>
                (row % per_dword * format_.bits) &
            code_mask()) +
           static_cast<std::uint32_t>(how_.zero_offset);
  }

  void copy_rows() {
    const std::int64_t bytes = data_row_bytes(format_, to_.cols);
    for (std::int64_t i = 0; i < n(); ++i)
      std::memcpy(data(i), from_.data + stored(i) * bytes, static_cast<std::size_t>(bytes));
  }

  void copy_scales_of_rows() {
    const std::int64_t bytes = n_groups_ * scale_size_;
    const std::int64_t block = std::max(how_.stored_block_rows, std::int64_t{1});
    for (std::int64_t i = 0; bytes > 0 && i < n(); ++i)
      std::memcpy(scale(i, 0), from_.scales + stored(i) / block * bytes,
                  static_cast<std::size_t>(bytes));
  }

  void copy_biases_of_rows() {
    if (!has_biases(format_)) return;
    if (format_.kind == WeightKind::Fp4) {
      if (first_ == 0) std::memcpy(writable(to_.biases), from_.biases, sizeof(float));
      return;
    }
    const std::int64_t bytes = bias_bytes(format_, 1, to_.cols);
    for (std::int64_t i = 0; i < n(); ++i)
      std::memcpy(writable(to_.biases) + (first_ + i) * bytes, from_.biases + stored(i) * bytes,
                  static_cast<std::size_t>(bytes));
  }

  void transpose() {
    data_row_bytes(format_, 1) == 4 ? transpose_of<std::uint32_t>() : transpose_of<std::uint16_t>();
  }
  template <class T>
  void transpose_of() {
    transpose_elements<T>(to_.cols);
  }

  // [n_elements, R] of T to rows of n_elements. A line of each row at a time.
  template <class T>
  void transpose_elements(std::int64_t n_elements) {
    constexpr std::int64_t kSize = sizeof(T), kAtOnce = 64 / kSize;
    for (std::int64_t first = 0; first < n_elements; first += kAtOnce) {
      const std::int64_t end = std::min(first + kAtOnce, n_elements);
      for (std::int64_t i = 0; i < n(); ++i) {
        const std::byte* in = from_.data + stored(i) * kSize;
        std::byte* out = data(i);
        for (std::int64_t k = first; k < end; ++k)
          std::memcpy(out + k * kSize, in + k * how_.stored_rows * kSize, sizeof(T));
      }
    }
  }

  void transpose_dwords() { transpose_elements<std::uint32_t>(dwords_of(to_.cols, format_.bits)); }

  void unpack_awq() {
    const std::int64_t per_row = how_.stored_rows / 8;
    for (std::int64_t c = 0; c < to_.cols; c += 8) {
      const std::int64_t end = std::min(c + 8, to_.cols);
      for (std::int64_t i = 0; i < n(); ++i) {
        const std::int64_t row = stored(i);
        std::uint32_t word = 0;
        for (std::int64_t k = c; k < end; ++k) {
          const std::uint32_t code =
              load_dword(from_.data, k * per_row + row / 8) >> kAwqShift[row % 8] & 15u;
          word |= code << (4 * (k - c));
        }
        std::memcpy(data(i) + c / 2, &word, sizeof word);
      }
    }
  }

  // To codes that stand for zero at 128.
  void copy_signed() {
    const std::int64_t bytes = data_row_bytes(format_, to_.cols);
    for (std::int64_t i = 0; i < n(); ++i) {
      std::byte* out = data(i);
      const std::byte* in = from_.data + stored(i) * to_.cols;
      for (std::int64_t c = 0; c < to_.cols; ++c) out[c] = in[c] ^ std::byte{0x80};
      std::fill(out + to_.cols, out + bytes, std::byte{0});
    }
  }

  // Four scales for 16 numbers each, then their codes: number j of the 16 in the lower half of byte
  // j, number 8 + j in the upper one.
  void unpack_nvfp4() {
    constexpr BlockShape kBlock = {.values = 64, .bytes = 36};
    const std::int64_t n_blocks = to_.cols / kBlock.values;
    for (std::int64_t i = 0; i < n(); ++i) {
      const std::byte* in = from_.data + stored(i) * n_blocks * kBlock.bytes;
      std::byte* out = data(i);
      for (std::int64_t b = 0; b < n_blocks; ++b, in += kBlock.bytes) {
        std::memcpy(scale(i, 4 * b), in, 4);
        for (int s = 0; s < 4; ++s) {
          const std::byte* codes = in + 4 + 8 * s;
          for (int j = 0; j < 4; ++j, ++out) {
            out[0] = (codes[2 * j] & std::byte{15}) | (codes[2 * j + 1] << 4);
            out[4] = (codes[2 * j] >> 4) | (codes[2 * j + 1] & std::byte{0xF0});
          }
          out += 4;
        }
      }
    }
  }

  void spread_rows() {
    spread([&](std::int64_t row, std::int64_t g) {
      return how_.has_one_scale ? 0 : row * n_stored_groups_ + g;
    });
  }

  // Scales: where(row, group) is the index of the stored one.
  template <class Where>
  void spread(Where where) {
    for (std::int64_t i = 0; i < n(); ++i) {
      for (std::int64_t g = 0; g < n_groups_; ++g)
        std::memcpy(scale(i, g), from_.scales + where(stored(i), stored_group(g)) * scale_size_,
                    static_cast<std::size_t>(scale_size_));
    }
  }

  template <class ZeroOf>
  void unpack_zeros(ZeroOf zero_of) {
    for (std::int64_t i = 0; i < n(); ++i) {
      for (std::int64_t g = 0; g < n_groups_; ++g) {
        const std::uint32_t value = zero_of(stored(i), stored_group(g));
        zeros_fit_ = zeros_fit_ && value <= 255;
        *zero(i, g) = static_cast<std::byte>(value);
      }
    }
  }

  const Repack& how_;
  const StoredPlanes& from_;
  const WeightView& to_;
  const WeightFormat& format_;
  std::int64_t scale_size_, n_groups_, n_stored_groups_;
  std::int64_t first_ = 0;            // row of the block that is written
  std::vector<std::int64_t> stored_;  // of its rows
  bool zeros_fit_ = true;
};

void append(RowRuns& runs, const RowRun& run) {
  if (run.take > 0 && run.count > 0) runs.push_back(run);
}

// Rows [begin, begin + count) of a run.
void append_part(RowRuns& out, const RowRun& run, std::int64_t begin, std::int64_t count) {
  const auto at = [&](std::int64_t i) { return run.first + i / run.take * run.stride; };
  const std::int64_t in_first = begin % run.take;
  const std::int64_t head =
      in_first == 0 && count >= run.take ? 0 : std::min(count, run.take - in_first);
  append(out, {at(begin) + in_first, head, head, 1});
  begin += head;
  count -= head;
  append(out, {at(begin), run.take, run.stride, count / run.take});
  begin += count / run.take * run.take;
  append(out, {at(begin), count % run.take, count % run.take, 1});
}

}  // namespace

std::string_view packing_name(Packing packing) {
  switch (packing) {
    case Packing::Rows:
      return "";
    case Packing::Transposed:
      return "transposed";
    case Packing::Gptq:
      return "gptq";
    case Packing::Awq:
      return "awq";
    case Packing::PackedRows:
      return "packed";
    case Packing::SignedBytes:
      return "signed";
    case Packing::Nvfp4Blocks:
      return "gguf";
  }
  return "";
}

std::int64_t n_rows_of(const RowRuns& runs) {
  std::int64_t n = 0;
  for (const RowRun& run : runs) n += run.take * run.count;
  return n;
}

RowRuns compose(const RowRuns& outer, const RowRuns& inner) {
  RowRuns result;
  const auto add = [&](std::int64_t begin, std::int64_t count) {
    for (const RowRun& run : outer) {
      const std::int64_t n = run.take * run.count;
      const std::int64_t part = std::clamp(n - begin, std::int64_t{0}, count);
      if (part > 0) append_part(result, run, begin, part);
      count -= part;
      begin = std::max(begin - n, std::int64_t{0});
    }
    MOEFLUX_ASSERT(count == 0);
  };
  // What steps through a single row after the other keeps its stride; the rest goes piece by piece.
  const bool is_whole = outer.size() == 1 && outer.front().take == outer.front().stride;
  for (const RowRun& run : inner) {
    MOEFLUX_ASSERT(run.first >= 0 && run.take > 0 && run.count > 0);
    if (is_whole) {
      MOEFLUX_ASSERT(run.first + (run.count - 1) * run.stride + run.take <= n_rows_of(outer));
      append(result, {outer.front().first + run.first, run.take, run.stride, run.count});
      continue;
    }
    for (std::int64_t i = 0; i < run.count; ++i) add(run.first + i * run.stride, run.take);
  }
  return result;
}

Repack Repack::pick(const RowRuns& picked) const {
  Repack result = *this;
  result.rows = compose(rows, picked);
  return result;
}

PlaneBytes plane_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols,
                       std::int64_t block_row0) {
  return {static_cast<std::uint64_t>(rows * data_row_bytes(format, cols)),
          static_cast<std::uint64_t>(scale_bytes(format, rows, cols, block_row0)),
          static_cast<std::uint64_t>(bias_bytes(format, rows, cols))};
}

PlaneBytes stored_bytes(const Repack& how, const WeightFormat& format, std::int64_t cols) {
  const std::int64_t rows = how.stored_rows;
  const auto bytes = [](std::int64_t data, std::int64_t scales, std::int64_t biases) {
    return PlaneBytes{static_cast<std::uint64_t>(data), static_cast<std::uint64_t>(scales),
                      static_cast<std::uint64_t>(biases)};
  };
  if (how.packing == Packing::Rows) {
    WeightFormat stored = format;
    stored.block_rows = static_cast<int>(how.stored_block_rows);
    return plane_bytes(stored, rows, cols);
  }
  if (how.packing == Packing::Transposed) return plane_bytes(format, rows, cols);
  if (how.packing == Packing::Nvfp4Blocks)
    return bytes(rows * cols / 64 * 36, 0, bias_bytes(format, rows, cols));
  const std::int64_t n = groups_of(cols, how.stored_group);
  const std::int64_t n_scales = how.has_one_scale ? 1 : n * rows;
  const bool has_biases = how.packing == Packing::Gptq && format.zero == AffineZero::Bias;
  const DType scale_dtype = has_biases ? how.stored_scale_dtype : format.scale_dtype;
  const std::int64_t scales = n_scales * static_cast<std::int64_t>(dtype_size(scale_dtype));
  const std::int64_t row_dwords = dwords_of(rows, format.bits);
  const std::int64_t col_dwords = dwords_of(cols, format.bits);
  const bool has_zeros = format.zero == AffineZero::ZeroPoint;
  switch (how.packing) {
    case Packing::Gptq:
      return bytes(col_dwords * rows * 4, scales, n * row_dwords * 4);
    case Packing::Awq:
      return bytes(cols * row_dwords * 4, scales, n * row_dwords * 4);
    case Packing::PackedRows:
      return bytes(rows * col_dwords * 4, scales, has_zeros ? row_dwords * n * 4 : 0);
    default:
      return bytes(rows * cols, scales, has_zeros ? n_scales : 0);
  }
}

bool repack_rows(const Repack& how, const StoredPlanes& from, const WeightView& to,
                 std::int64_t begin, std::int64_t end) {
  MOEFLUX_ASSERT(!to.format.is_interleaved && to.block_row0 == 0);
  return Repacker(how, from, to).run(begin, end);
}

}  // namespace moeflux
