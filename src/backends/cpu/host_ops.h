// Operands resolved to memory: what the loops of this backend work with.
#pragma once

#include <cstdint>
#include <span>

#include "backends/op.h"
#include "base/error.h"
#include "quant/weight_format.h"

namespace moeflux::cpu {

inline std::byte* at(const Buffer* buffer, std::uint64_t offset) {
  return buffer->address() + offset;
}

// Null for an operand that is not there.
inline float* floats(const View& view) {
  if (view.empty()) return nullptr;
  MOEFLUX_ASSERT(view.type == ElementType::F32);
  return static_cast<float*>(static_cast<void*>(at(view.buffer, view.offset)));
}
inline std::int32_t* ints(const View& view) {
  if (view.empty()) return nullptr;
  MOEFLUX_ASSERT(view.type == ElementType::I32);
  return static_cast<std::int32_t*>(static_cast<void*>(at(view.buffer, view.offset)));
}

inline WeightView resolved(const Weight& w) {
  const auto plane = [&](std::uint64_t offset) {
    return offset == Weight::kNoPlane ? nullptr : at(w.buffer, offset);
  };
  return {.format = w.format,
          .rows = w.rows,
          .cols = w.cols,
          .data = plane(w.data),
          .scales = plane(w.scales),
          .biases = plane(w.biases),
          .block_row0 = w.block_row0};
}

// The first of positions that follow each other.
inline std::int64_t first_position(const View& positions) {
  return positions.cols == 0 ? 0 : *ints(positions);
}

inline std::byte* kv_at(const KvView& cache, std::int64_t head, std::int64_t position) {
  return at(cache.buffer, cache.offset) + cache.at(head, position);
}

struct HostMatmul {
  WeightView weight;
  const float* bias = nullptr;
  const float* x;
  std::int64_t x_stride;
  std::int64_t n;
  float* y;
  std::int64_t y_stride;
};

inline HostMatmul resolved(const MatmulOp& op) {
  return {.weight = resolved(op.weight),
          .bias = floats(op.bias),
          .x = floats(op.x),
          .x_stride = op.x.stride,
          .n = op.x.rows,
          .y = floats(op.y),
          .y_stride = op.y.stride};
}

struct HostFfn {
  WeightView gate, up, down;
  const float *gate_bias, *up_bias, *down_bias;  // or null
  FfnActivation activation;
  const float* x;  // [*, d_model]
  std::int64_t n;
  std::span<const std::int32_t> rows_in;   // empty: rows 0 .. n - 1
  std::span<const std::int32_t> rows_out;  // likewise
  float* hidden;                           // [n, d_ff]
  float* y;                                // [*, d_model]

  const float* input(std::int64_t row) const {
    return x + (rows_in.empty() ? row : rows_in[static_cast<std::size_t>(row)]) * gate.cols;
  }
  float* output(std::int64_t row) const {
    return y + (rows_out.empty() ? row : rows_out[static_cast<std::size_t>(row)]) * down.rows;
  }
};

inline HostFfn resolved(const FfnOp& op) {
  MOEFLUX_ASSERT(op.x.is_packed() && op.y.is_packed());
  const auto list = [](const View& rows) {
    return std::span<const std::int32_t>(ints(rows), static_cast<std::size_t>(rows.cols));
  };
  return {.gate = resolved(op.gate),
          .up = resolved(op.up),
          .down = resolved(op.down),
          .gate_bias = floats(op.gate_bias),
          .up_bias = floats(op.up_bias),
          .down_bias = floats(op.down_bias),
          .activation = op.activation,
          .x = floats(op.x),
          .n = op.hidden.rows,
          .rows_in = list(op.rows_in),
          .rows_out = list(op.rows_out),
          .hidden = floats(op.hidden),
          .y = floats(op.y)};
}

// One small matrix per head, see HeadMatrix.
struct HostHeadMatrix {
  explicit HostHeadMatrix(const HeadMatrix& m)
      : weight(resolved(m.weight)),
        head_rows(m.head_rows),
        row0(m.row0),
        rows(m.rows),
        transpose(m.transpose) {}
  std::int64_t row(std::int64_t head, std::int64_t i) const { return head * head_rows + row0 + i; }

  WeightView weight;
  std::int64_t head_rows, row0, rows;
  bool transpose;
};

}  // namespace moeflux::cpu
