#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/grow.h"
#include "base/aligned_buffer.h"
#include "base/portable_math.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace moeflux::cpu {
namespace {

// Of a thread, not less than what the kinds of attention.cpp add up to: queries and their sums,
// scores, and keys and values of a block, decoded and laid out anew.
std::int64_t attention_floats(const WidestOps& ops) {
  constexpr std::int64_t kBlock = kKeyBlock, kLine = 16;
  const std::int64_t n_queries = ops.d_latent > 0 ? kExpandedQueries : kQueryPiece;
  const std::int64_t d = ops.d_query + ops.d_value + 4 * kLine;
  return n_queries * d + kBlock * (2 * kBlock + 4 * (d + ops.d_latent)) + ops.d_latent * d;
}

// Of a thread, where blocks of keys are shared out: sums of some, for a small tile of queries.
std::int64_t attention_part_floats(const WidestOps& ops) {
  constexpr std::int64_t kParts = 10, kQueries = 16, kLine = 16;
  return kParts * kQueries * (std::max(ops.d_value, ops.d_latent) + 2 * kLine);
}

}  // namespace

std::uint64_t scratch_needed(const WidestOps& ops, int n_threads) {
  // Two digits of 8 bits, and two floats for every group of 32 or more; padded.
  const auto rounded = [](std::int64_t values) { return values * 5 / 2; };
  const auto rows = [](std::int64_t n) { return std::min(n, kRoundedRowsAtOnce); };
  const std::int64_t most_rows = std::max(ops.ffn_rows, ops.expert_rows);
  const std::int64_t ffn_rows = std::min(most_rows, kFfnRowsAtOnce);
  const std::int64_t inputs = rounded(std::max(ops.matmul_values, rows(most_rows) * ops.d_model));
  const std::int64_t hidden =
      rounded(std::max(rows(ops.ffn_rows) * ops.d_ff, rows(ops.expert_rows) * ops.d_expert));
  const std::int64_t gathered = ffn_rows * ops.d_model * std::int64_t{sizeof(float)};
  const std::int64_t d_hidden = std::max(ops.d_ff, ops.d_expert);
  const std::int64_t mixed =
      std::min(most_rows, kMixedFfnRowsAtOnce) *
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

namespace {

// Memory is AlignedBuffer's or HugeBuffer's.
template <class Memory>
class HostBuffer final : public Buffer {
 public:
  HostBuffer(MemoryKind kind, Memory memory)
      : Buffer(kind, memory.size(), memory.data(), memory.data()), memory_(std::move(memory)) {}

 private:
  Memory memory_;
};

}  // namespace

std::unique_ptr<Buffer> CpuBackend::allocate(std::uint64_t bytes, MemoryKind kind,
                                             Backing backing) {
  if (backing == Backing::Huge)
    return std::make_unique<HostBuffer<HugeBuffer>>(kind, HugeBuffer(bytes));
  return std::make_unique<HostBuffer<AlignedBuffer>>(kind, AlignedBuffer(bytes));
}

void CpuBackend::discard(const Bytes& bytes) {
  static_cast<void>(::madvise(at(bytes.buffer, bytes.offset), bytes.size, MADV_DONTNEED));
}

WeightFormat CpuBackend::layout_for(const WeightFormat& format, WeightUse use) const {
  return arranged(format, use == WeightUse::Product && product_digits_ > 0);
}

void CpuBackend::upload(std::span<const std::byte> from, const Bytes& to) {
  MOEFLUX_ASSERT(from.size() == to.size);
  if (!from.empty()) std::memcpy(at(to.buffer, to.offset), from.data(), from.size());
}

void CpuBackend::download(const Bytes& from, std::span<std::byte> to) {
  MOEFLUX_ASSERT(to.size() == from.size);
  if (!to.empty()) std::memcpy(to.data(), at(from.buffer, from.offset), to.size());
}

// All threads copy: one alone does not saturate the memory.
void CpuBackend::copy(const Bytes& from, const Bytes& to) {
  constexpr std::int64_t kLeastPerThread = 1 << 14;
  MOEFLUX_ASSERT(from.size == to.size);
  const auto size = static_cast<std::int64_t>(from.size);
  const std::int64_t grain = std::max((size + pool_.size() - 1) / pool_.size(), kLeastPerThread);
  pool_.parallel_for(size, grain, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(at(to.buffer, to.offset) + begin, at(from.buffer, from.offset) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void CpuBackend::clear(const Bytes& bytes) {
  if (!bytes.empty()) std::memset(at(bytes.buffer, bytes.offset), 0, bytes.size);
}

void CpuBackend::embed(const EmbedOp& op) {
  const WeightView table = resolved(op.table);
  // A table that is also the head lies as products want it.
  const auto decode = table.format.is_interleaved ? decode_row : kernels_.decode_row;
  pool_.parallel_for(op.out.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* out = floats(op.out) + i * op.out.stride;
      decode(table, ints(op.tokens)[i], out);
      if (op.scale == 1) continue;
      for (std::int64_t c = 0; c < op.out.cols; ++c) out[c] *= op.scale;
    }
  });
}

void CpuBackend::rms_norm(const RmsNormOp& op) {
  const std::int64_t d = op.x.cols;
  const float* weight = floats(op.weight);
  pool_.parallel_for(op.x.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* x = floats(op.x) + i * op.x.stride;
      float* out = floats(op.out) + i * op.out.stride;
      const float mean_square = kernels_.dot(x, x, d) / static_cast<float>(d);
      const float inverse = 1.0f / std::sqrt(mean_square + op.eps);
      if (weight == nullptr) {
        for (std::int64_t c = 0; c < d; ++c) out[c] = x[c] * inverse;
      } else {
        for (std::int64_t c = 0; c < d; ++c) out[c] = x[c] * inverse * weight[c];
      }
    }
  });
}

void CpuBackend::add(const AddOp& op) {
  MOEFLUX_ASSERT(op.x.is_packed() && op.y.is_packed());
  const float* x = floats(op.x);
  float* y = floats(op.y);
  pool_.parallel_for(op.x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += x[i];
    if (op.scale.empty()) return;
    const float scale = *floats(op.scale);
    for (std::int64_t i = begin; i < end; ++i) y[i] *= scale;
  });
}

void CpuBackend::softcap(const SoftcapOp& op) {
  const double cap = op.cap;
  pool_.parallel_for(op.x.rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* x = floats(op.x) + i * op.x.stride;
      for (std::int64_t c = 0; c < op.x.cols; ++c) {
        const double tanh = 1 - 2 / (portable::exp(2 * (x[c] / cap)) + 1);
        x[c] = static_cast<float>(cap * tanh);
      }
    }
  });
}

void CpuBackend::clamp(const ClampOp& op) {
  pool_.parallel_for(op.x.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* x = floats(op.x) + i * op.x.stride;
      for (std::int64_t c = 0; c < op.x.cols; ++c) x[c] = std::clamp(x[c], -op.limit, op.limit);
    }
  });
}

void CpuBackend::rope(const RopeOp& op) {
  const RopeSpec& rope = *op.rope;
  const int half = rope.n_rot / 2;
  const int step = rope.interleaved ? 2 : 1;
  const int partner = rope.interleaved ? 1 : half;
  pool_.parallel_for(op.x.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto position = static_cast<float>(ints(op.positions)[i]);
      for (int pair = 0; pair < half; ++pair) {
        const float angle = position * rope.inv_freq[static_cast<std::size_t>(pair)];
        const portable::SinCos turn = portable::sin_cos(angle);
        const float cosine = static_cast<float>(turn.cos) * rope.magnitude;
        const float sine = static_cast<float>(turn.sin) * rope.magnitude;
        float* first = floats(op.x) + i * op.x.stride + pair * step;
        for (int h = 0; h < op.n_heads; ++h, first += op.head_stride) {
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
  const std::int64_t d = op.out.cols, top_k = op.weights.cols;
  const float* weights = floats(op.weights);
  pool_.parallel_for(op.out.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* out = floats(op.out) + i * op.out.stride;
      std::fill_n(out, d, 0.0f);
      for (std::int64_t pair = i * top_k; pair < (i + 1) * top_k; ++pair)
        kernels_.axpy(weights[pair], floats(op.experts) + pair * op.experts.stride, out, d);
      if (op.shared.empty()) continue;
      const float scale =
          op.shared_gate.empty() ? 1.0f : portable::sigmoid(floats(op.shared_gate)[i]);
      kernels_.axpy(scale, floats(op.shared) + i * op.shared.stride, out, d);
    }
  });
}

}  // namespace moeflux::cpu
