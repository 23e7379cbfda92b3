#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

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

namespace cpu {

std::string CpuBackend::name() const {
  return fmt::format("cpu ({}, {} threads)", kernels_.name, pool_.size());
}

void CpuBackend::parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  pool_.parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

float* CpuBackend::scratch(int worker, std::int64_t n) {
  auto& memory = scratch_[static_cast<std::size_t>(worker)];
  if (memory.size() < static_cast<std::size_t>(n)) memory.resize(static_cast<std::size_t>(n));
  return memory.data();
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
        const float cosine = std::cos(angle) * rope.magnitude;
        const float sine = std::sin(angle) * rope.magnitude;
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
      const float scale = op.shared_gate != nullptr ? sigmoid(op.shared_gate[i]) : 1.0f;
      kernels_.axpy(scale, op.shared + i * op.d, out, op.d);
    }
  });
}

}  // namespace cpu
}  // namespace moeflux
