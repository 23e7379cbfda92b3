#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/grow.h"
#include "base/portable_math.h"
#include "quant/codec.h"

namespace moeflux {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options, cpu::select_kernels(options.cpu_isa));
}

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::Exact:
      return "exact";
    case Precision::Fine:
      return "fine";
    case Precision::Fast:
      return "fast";
  }
  return "?";
}

namespace {

// Of a thread, not less than what the kinds of attention.cpp add up to: queries and their sums,
// scores, and keys and values of a block, decoded and laid out anew.
std::int64_t attention_floats(const WidestOps& ops) {
  constexpr std::int64_t kBlock = cpu::kKeyBlock, kLine = 16;
  const std::int64_t n_queries = ops.d_latent > 0 ? cpu::kExpandedQueries : cpu::kQueryPiece;
  const std::int64_t d = ops.d_query + ops.d_value + 4 * kLine;
  return n_queries * d + kBlock * (2 * kBlock + 4 * (d + ops.d_latent)) + ops.d_latent * d;
}

// Of a thread, where blocks of keys are shared out: sums of some, for a small tile of queries.
std::int64_t attention_part_floats(const WidestOps& ops) {
  constexpr std::int64_t kParts = 10, kQueries = 16, kLine = 16;
  return kParts * kQueries * (std::max(ops.d_value, ops.d_latent) + 2 * kLine);
}

}  // namespace

std::uint64_t cpu_scratch_bytes(const WidestOps& ops, int n_threads) {
  // Two digits of 8 bits, and two floats for every group of 32 or more; padded.
  const auto rounded = [](std::int64_t values) { return values * 5 / 2; };
  const auto rows = [](std::int64_t n) { return std::min(n, cpu::kRoundedRowsAtOnce); };
  const std::int64_t most_rows = std::max(ops.ffn_rows, ops.expert_rows);
  const std::int64_t ffn_rows = std::min(most_rows, cpu::kFfnRowsAtOnce);
  const std::int64_t inputs = rounded(std::max(ops.matmul_values, rows(most_rows) * ops.d_model));
  const std::int64_t hidden =
      rounded(std::max(rows(ops.ffn_rows) * ops.d_ff, rows(ops.expert_rows) * ops.d_expert));
  const std::int64_t gathered = ffn_rows * ops.d_model * std::int64_t{sizeof(float)};
  const std::int64_t d_hidden = std::max(ops.d_ff, ops.d_expert);
  const std::int64_t mixed =
      std::min(most_rows, cpu::kMixedFfnRowsAtOnce) *
      (rounded(d_hidden) + (d_hidden + ops.d_model) * std::int64_t{sizeof(float)});
  constexpr std::int64_t kDecodedRows = 32;
  const std::int64_t columns =
      std::max(ops.d_expert, std::max(ops.d_ff, ops.d_model) / (8 * n_threads) + 320);
  const std::int64_t product = kDecodedRows * (ops.cols + 64) + ffn_rows * columns;
  const std::int64_t floats_per_thread =
      std::max(product, attention_floats(ops)) + attention_part_floats(ops);
  return static_cast<std::uint64_t>(inputs + hidden + gathered + mixed +
                                    n_threads * floats_per_thread * std::int64_t{sizeof(float)});
}

namespace cpu {

std::string CpuBackend::name() const {
  return fmt::format("cpu ({}, {} threads)", kernels_.name, pool_.size());
}

std::uint64_t CpuBackend::scratch_bytes() const {
  std::uint64_t floats = gathered_.capacity() + mixed_.capacity() + attention_parts_.capacity();
  for (const std::vector<float>& memory : scratch_) floats += memory.capacity();
  return floats * sizeof(float) + rounded_inputs_.size() + rounded_hidden_.size();
}

void CpuBackend::parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  pool_.parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

float* CpuBackend::scratch(int worker, std::int64_t n) {
  return grown(scratch_[static_cast<std::size_t>(worker)], static_cast<std::size_t>(n));
}

void CpuBackend::embed(const EmbedOp& op) {
  const auto n = static_cast<std::int64_t>(op.tokens.size());
  pool_.parallel_for(n, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      // A table that is also the head lies as products want it.
      const auto decode = op.table.format.in_panels ? decode_row : kernels_.decode_row;
      decode(op.table, op.tokens[static_cast<std::size_t>(i)], op.out + i * op.table.cols);
    }
  });
}

void CpuBackend::rms_norm(const RmsNormOp& op) {
  pool_.parallel_for(op.n, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* x = op.x + i * op.x_stride;
      float* out = op.out + i * op.out_stride;
      const float mean_square = kernels_.dot(x, x, op.d) / static_cast<float>(op.d);
      const float inverse = 1.0f / std::sqrt(mean_square + op.eps);
      for (std::int64_t c = 0; c < op.d; ++c) out[c] = x[c] * inverse * op.weight[c];
    }
  });
}

void CpuBackend::add(const AddOp& op) {
  pool_.parallel_for(op.count, 1 << 14, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) op.y[i] += op.x[i];
  });
}

void CpuBackend::rope(const RopeOp& op) {
  const RopeSpec& rope = *op.rope;
  const int half = rope.n_rot / 2;
  const int step = rope.interleaved ? 2 : 1;
  const int partner = rope.interleaved ? 1 : half;
  pool_.parallel_for(op.n, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto position = static_cast<float>(op.first_position + i);
      for (int pair = 0; pair < half; ++pair) {
        const float angle = position * rope.inv_freq[static_cast<std::size_t>(pair)];
        const portable::SinCos turn = portable::sin_cos(angle);
        const float cosine = static_cast<float>(turn.cos) * rope.magnitude;
        const float sine = static_cast<float>(turn.sin) * rope.magnitude;
        for (int h = 0; h < op.n_heads; ++h) {
          float* first = op.x + i * op.token_stride + h * op.head_stride + pair * step;
          const float a = first[0];
          const float b = first[partner];
          first[0] = a * cosine - b * sine;
          first[partner] = b * cosine + a * sine;
        }
      }
    }
  });
}

void CpuBackend::combine(const CombineOp& op) {
  pool_.parallel_for(op.n, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* out = op.out + i * op.d;
      std::fill_n(out, op.d, 0.0f);
      for (int slot = 0; slot < op.top_k; ++slot) {
        const std::int64_t pair = i * op.top_k + slot;
        kernels_.axpy(op.weights[pair], op.experts + pair * op.d, out, op.d);
      }
      if (op.shared == nullptr) continue;
      const float scale = op.shared_gate != nullptr ? portable::sigmoid(op.shared_gate[i]) : 1.0f;
      kernels_.axpy(scale, op.shared + i * op.d, out, op.d);
    }
  });
}

}  // namespace cpu
}  // namespace moeflux
