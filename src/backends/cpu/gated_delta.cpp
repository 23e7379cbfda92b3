// The linear-attention layer: short convolution and gated delta rule, both in their recurrent form.
#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/delta_step.h"
#include "backends/cpu/host_ops.h"
#include "base/error.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

constexpr float kL2Eps = 1e-6f;  // fixed in the reference, not the model's norm eps

// Columns of a head's state that are taken through all tokens together.
constexpr int kDeltaColumns = 64;

struct HostDelta {
  explicit HostDelta(const GatedDeltaOp& op)
      : spec(op.spec),
        qkv(floats(op.qkv)),
        z(floats(op.z)),
        b(floats(op.b)),
        a(floats(op.a)),
        a_log(floats(op.a_log)),
        dt_bias(floats(op.dt_bias)),
        norm(floats(op.norm)),
        eps(op.eps),
        state(floats(op.state)),
        n(op.qkv.rows),
        out(floats(op.out)) {}

  const GatedDeltaSpec* spec;
  float *qkv, *z, *b, *a;
  const float *a_log, *dt_bias, *norm;
  float eps;
  float* state;
  std::int64_t n;
  float* out;
};

// x <- x / |x| * scale
void l2_normalize(const KernelTable& kernels, float* x, int d, float scale) noexcept {
  const float inverse = scale / std::sqrt(kernels.dot(x, x, d) + kL2Eps);
  for (int c = 0; c < d; ++c) x[c] *= inverse;
}

void copy_rows(const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride,
               std::int64_t n, std::int64_t d) noexcept {
  for (std::int64_t i = 0; i < n; ++i) std::copy_n(x + i * x_stride, d, y + i * y_stride);
}

// Once for each token and key head, however many value heads use them: queries and keys of length
// 1, decays, betas.
void prepare_token(const KernelTable& kernels, const HostDelta& op, std::int64_t i) noexcept {
  const GatedDeltaSpec& s = *op.spec;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(s.d_key));
  float* q = op.qkv + i * s.conv_dim();
  float* k = q + s.key_dim();
  for (int h = 0; h < s.n_key_heads; ++h) {
    l2_normalize(kernels, q + h * s.d_key, s.d_key, q_scale);
    l2_normalize(kernels, k + h * s.d_key, s.d_key, 1.0f);
  }
  float* a = op.a + i * s.n_value_heads;
  float* b = op.b + i * s.n_value_heads;
  for (int h = 0; h < s.n_value_heads; ++h) {
    a[h] = portable::exp(-portable::exp(op.a_log[h]) * portable::softplus(a[h] + op.dt_bias[h]));
    b[h] = portable::sigmoid(b[h]);
  }
}

// The gated norm of one read-out; row = token * n_value_heads + head.
void finish_row(const KernelTable& kernels, const HostDelta& op, std::int64_t row) noexcept {
  const GatedDeltaSpec& s = *op.spec;
  float* out = op.out + row * s.d_value;
  float* gate = op.z + row * s.d_value;
  s.output_gate == GateActivation::Silu ? kernels.silu_row(gate, gate, s.d_value)
                                        : kernels.sigmoid_row(gate, gate, s.d_value);
  const float mean_square = kernels.dot(out, out, s.d_value) / static_cast<float>(s.d_value);
  const float inverse = 1.0f / std::sqrt(mean_square + op.eps);
  for (int c = 0; c < s.d_value; ++c) out[c] = out[c] * inverse * op.norm[c] * gate[c];
}

}  // namespace

void CpuBackend::short_conv(const ShortConvOp& op) {
  const auto width = static_cast<int>(op.weight.rows);
  const std::int64_t channels = op.x.cols, n_rows = op.x.rows;
  MOEFLUX_ASSERT(width <= kMaxConvWidth && op.x.is_packed() && op.out.is_packed());
  const float* inputs = floats(op.x);
  float* state = floats(op.state);
  const int past = width - 1;
  const std::int64_t grain = n_rows == 1 ? 1024 : 256;  // parts of one token are soon done
  pool_.parallel_for(channels, grain, [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t n = end - begin;
    std::array<const float*, kMaxConvWidth> x{};
    for (std::int64_t i = 0; i < n_rows; ++i) {
      for (int tap = 0; tap < width; ++tap) {
        // From the state while the input lies before this call.
        const std::int64_t t = i + tap - past;
        x[static_cast<std::size_t>(tap)] =
            (t < 0 ? state + (t + past) * channels : inputs + t * channels) + begin;
      }
      kernels_.conv_row({.x = x.data(),
                         .weights = floats(op.weight) + begin,
                         .weight_stride = channels,
                         .n_taps = width,
                         .n = n,
                         .out = floats(op.out) + i * channels + begin});
    }
    for (int slot = 0; slot < past; ++slot) {  // the last `past` inputs, oldest first
      const std::int64_t t = n_rows - past + slot;
      const float* from = t < 0 ? state + (t + past) * channels : inputs + t * channels;
      std::copy(from + begin, from + end, state + slot * channels + begin);
    }
  });
}

void CpuBackend::gated_delta(const GatedDeltaOp& operands) {
  MOEFLUX_ASSERT(operands.qkv.is_packed() && operands.z.is_packed() && operands.out.is_packed());
  const HostDelta op(operands);
  const GatedDeltaSpec& s = *op.spec;
  pool_.parallel_for(op.n, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) prepare_token(kernels_, op, i);
  });
  // Several tokens: a few columns at a time, packed, since rows of the state that are a power of
  // two apart fall on the same few lines of a cache. One token: a head at a time, where it is.
  const bool packed = op.n > 1;
  const int columns = packed ? std::min(kDeltaColumns, s.d_value) : s.d_value;
  const int pieces = (s.d_value + columns - 1) / columns;
  const auto run_task = [&](std::int64_t task, int worker) {
    const std::int64_t h = task / pieces;
    const std::int64_t first = task % pieces * columns;
    const std::int64_t key_head = s.key_head_of(static_cast<int>(h));
    const int n_columns = static_cast<int>(std::min<std::int64_t>(columns, s.d_value - first));
    float* state = op.state + h * s.d_key * s.d_value + first;
    float* piece = packed ? scratch(worker, std::int64_t{s.d_key} * n_columns) : state;
    if (packed) copy_rows(state, s.d_value, piece, n_columns, s.d_key, n_columns);
    kernels_.delta_step({.state = piece,
                         .state_stride = packed ? n_columns : s.d_value,
                         .d_key = s.d_key,
                         .n_columns = n_columns,
                         .n = op.n,
                         .q = op.qkv + key_head * s.d_key,
                         .k = op.qkv + s.key_dim() + key_head * s.d_key,
                         .qk_stride = s.conv_dim(),
                         .v = op.qkv + 2 * s.key_dim() + h * s.d_value + first,
                         .v_stride = s.conv_dim(),
                         .decay = op.a + h,
                         .beta = op.b + h,
                         .gate_stride = s.n_value_heads,
                         .out = op.out + h * s.d_value + first,
                         .out_stride = s.value_dim()});
    if (packed) copy_rows(piece, n_columns, state, s.d_value, s.d_key, n_columns);
    if (op.n == 1) finish_row(kernels_, op, h);
  };
  const std::int64_t n_tasks = s.n_value_heads * pieces;
  // Token by token a thread mostly gets the same heads again: what it wrote is in its own cache.
  const std::int64_t grain = op.n == 1 ? (n_tasks + pool_.size() - 1) / pool_.size() : 1;
  pool_.parallel_for(n_tasks, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t task = begin; task < end; ++task) run_task(task, worker);
  });
  if (op.n == 1) return;
  pool_.parallel_for(op.n, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin * s.n_value_heads; row < end * s.n_value_heads; ++row)
      finish_row(kernels_, op, row);
  });
}

}  // namespace moeflux::cpu
