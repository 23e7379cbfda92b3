// Operations on rows: embedding, norms, sums, rotation, routing, linear attention.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/delta.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/norm_rows.h"
#include "backends/cuda/kernels/router.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {

void CudaBackend::embed(const EmbedOp& op) {
  note_rows(op.out.rows);
  auto p = zeroed<gpu::EmbedParams>();
  p.table = device_weight(op.table);
  p.tokens = ints(op.tokens);
  p.out = floats(op.out);
  p.out_stride = op.out.stride;
  p.scale = op.scale;
  if (op.out.rows > 0) launch("embed", p, {.x = count(op.out.rows), .threads = 256});
}

namespace {

bool is_multiple_of_16(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; });
}

}  // namespace

// False: rows are not whole quads, or too long.
bool CudaBackend::norm_of_many_rows(const gpu::RmsNormParams& norm, std::int64_t rows) {
  if (norm.d % 4 != 0 || norm.x_stride % 4 != 0 || norm.out_stride % 4 != 0 ||
      norm.d > gpu::kMostOfBlock || !is_multiple_of_16({norm.x, norm.out, norm.weight}))
    return false;
  auto p = zeroed<gpu::NormRowsParams>();
  p.norm = norm;
  p.rows = static_cast<std::int32_t>(rows);
  if (norm.d <= gpu::kMostOfWarp)
    launch("norm_short_rows", p,
           {.x = pieces(rows, gpu::kNormRowThreads / gpu::kWarp), .threads = gpu::kNormRowThreads});
  else
    launch("norm_long_rows", p, {.x = count(rows), .threads = gpu::kNormRowThreads});
  return true;
}

void CudaBackend::rms_norm(const RmsNormOp& op) {
  note_rows(op.x.rows);
  settle();
  const bool is_kept = op.out.buffer != op.x.buffer || op.out.offset != op.x.offset;
  if (may_wait(op.x.rows) && is_kept && !op.weight.empty() && op.x.cols % 8 == 0) {
    waiting_.norm = op;
    waiting_.is_empty = false;
    return;
  }
  launch_norm(op);
}

void CudaBackend::launch_norm(const RmsNormOp& op) {
  auto p = zeroed<gpu::RmsNormParams>();
  p.x = floats(op.x);
  p.weight = floats(op.weight);
  p.out = floats(op.out);
  p.x_stride = op.x.stride;
  p.out_stride = op.out.stride;
  p.d = static_cast<std::int32_t>(op.x.cols);
  p.eps = op.eps;
  if (precision_ != Precision::Exact && op.x.rows > kFewRows && norm_of_many_rows(p, op.x.rows))
    return;
  if (op.x.rows > 0)
    launch("rms_norm", p,
           {.x = count(op.x.rows), .threads = threads_for((op.x.cols + 7) / 8, gpu::kNormThreads)});
}

void CudaBackend::launch_add(const AddOp& op) {
  auto p = zeroed<gpu::AddParams>();
  p.x = floats(op.x);
  p.y = floats(op.y);
  p.scale = floats(op.scale);
  p.n = op.y.size();
  if (p.n > 0) launch("add", p, {.x = pieces(p.n, 256), .threads = 256});
}

void CudaBackend::clamp(const ClampOp& op) {
  auto p = zeroed<gpu::BoundParams>();
  p.x = floats(op.x);
  p.stride = op.x.stride;
  p.cols = static_cast<std::int32_t>(op.x.cols);
  p.bound = op.limit;
  if (op.x.rows > 0)
    launch("clamp", p, {.x = pieces(op.x.cols, 256), .y = count(op.x.rows), .threads = 256});
}

void CudaBackend::softcap(const SoftcapOp& op) {
  auto p = zeroed<gpu::BoundParams>();
  p.x = floats(op.x);
  p.stride = op.x.stride;
  p.cols = static_cast<std::int32_t>(op.x.cols);
  p.bound = op.cap;
  if (op.x.rows > 0)
    launch("softcap", p, {.x = pieces(op.x.cols, 256), .y = count(op.x.rows), .threads = 256});
}

void CudaBackend::rope(const RopeOp& op) {
  auto p = zeroed<gpu::RopeParams>();
  p.x = floats(op.x);
  p.stride = op.x.stride;
  p.head_stride = op.head_stride;
  p.positions = ints(op.positions);
  p.inverse_frequencies = constants(op.rope->inv_freq);
  p.n_heads = op.n_heads;
  p.half = op.rope->n_rot / 2;
  p.step = op.rope->interleaved ? 2 : 1;
  p.partner = op.rope->interleaved ? 1 : p.half;
  p.magnitude = op.rope->magnitude;
  if (op.x.rows > 0 && p.half > 0) launch("rope", p, {.x = count(op.x.rows), .threads = 256});
}

void CudaBackend::store_kv(const StoreKvOp& op) {
  const KvShape& shape = op.cache.shape;
  auto p = zeroed<gpu::StoreKvParams>();
  p.cache = device_kv(op.cache);
  p.x = floats(op.x);
  p.x_stride = op.x.stride;
  p.positions = ints(op.positions);
  if (op.x.rows > 0)
    launch(
        "store_kv", p,
        {.x = count(op.x.rows), .y = count(shape.n_heads), .threads = threads_for(shape.d, 256)});
}

void CudaBackend::route(const RouteOp& op) {
  MOEFLUX_ASSERT(op.ids.is_packed() && op.weights.is_packed());
  if (op.logits.cols > gpu::kMostExperts || op.router->n_groups > gpu::kWarp ||
      op.ids.cols > gpu::kWarp)
    fail(Errc::Unsupported,
         "the GPU chooses at most {} of {} experts in {} groups; this layer chooses {} of {} in {}",
         gpu::kWarp, gpu::kMostExperts, gpu::kWarp, op.ids.cols, op.logits.cols,
         op.router->n_groups);
  settle();
  if (may_wait(op.logits.rows)) {
    waiting_.route = op;
    waiting_.is_empty = false;
    return;
  }
  launch_route(op);
}

void CudaBackend::launch_route(const RouteOp& op) {
  if (op.logits.rows > 0)
    launch(precision_ == Precision::Exact ? "route_exact" : "route", route_params(op),
           {.x = count(op.logits.rows), .threads = 32});
}

gpu::RouteParams CudaBackend::route_params(const RouteOp& op) {
  const RouterSpec& router = *op.router;
  auto p = zeroed<gpu::RouteParams>();
  p.logits = floats(op.logits);
  p.stride = op.logits.stride;
  p.correction_bias = floats(op.correction_bias);
  p.expert_scales = floats(op.expert_scales);
  p.ids = ints(op.ids);
  p.weights = floats(op.weights);
  p.n_experts = static_cast<std::int32_t>(op.logits.cols);
  p.top_k = static_cast<std::int32_t>(op.ids.cols);
  p.n_groups = router.n_groups;
  p.top_groups = router.top_groups;
  p.is_sigmoid = router.scoring == RouterScoring::Sigmoid;
  p.scores_chosen = router.scores_chosen;
  p.normalize = router.normalize;
  p.scale = router.scale;
  return p;
}

void CudaBackend::launch_combine(const CombineOp& op) {
  auto p = zeroed<gpu::CombineParams>();
  p.experts = floats(op.experts);
  p.weights = floats(op.weights);
  p.shared = floats(op.shared);
  p.shared_gate = floats(op.shared_gate);
  p.out = floats(op.out);
  p.experts_stride = op.experts.stride;
  p.shared_stride = op.shared.stride;
  p.out_stride = op.out.stride;
  p.d = static_cast<std::int32_t>(op.out.cols);
  p.top_k = static_cast<std::int32_t>(op.weights.cols);
  p.is_exact = precision_ == Precision::Exact;
  if (op.out.rows > 0)
    launch("combine", p, {.x = pieces(op.out.cols, 256), .y = count(op.out.rows), .threads = 256});
}

void CudaBackend::short_conv(const ShortConvOp& op) {
  MOEFLUX_ASSERT(op.x.is_packed() && op.out.is_packed());
  if (op.x.rows == 0) return;
  auto p = zeroed<gpu::ConvParams>();
  p.x = floats(op.x);
  p.weight = floats(op.weight);
  p.state = floats(op.state);
  p.out = floats(op.out);
  p.channels = static_cast<std::int32_t>(op.x.cols);
  p.width = static_cast<std::int32_t>(op.weight.rows);
  p.n = static_cast<std::int32_t>(op.x.rows);
  const unsigned blocks = pieces(op.x.cols, 256);
  if (p.n == 1) return launch("short_conv_step", p, {.x = blocks, .threads = 256});
  const bool are_quads = p.channels % 4 == 0 && is_multiple_of_16({p.x, p.weight, p.state, p.out});
  if (precision_ != Precision::Exact && p.n > kFewRows && p.width == 4 && are_quads)
    launch("short_conv_rows", p,
           {.x = pieces(p.channels / 4, gpu::kConvThreads),
            .y = pieces(p.n, gpu::kConvRun),
            .threads = gpu::kConvThreads});
  else
    launch("short_conv", p, {.x = blocks, .y = count(op.x.rows), .threads = 256});
  launch("advance_conv", p, {.x = blocks, .threads = 256});
}

void CudaBackend::gated_delta(const GatedDeltaOp& op) {
  const GatedDeltaSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.qkv.is_packed() && op.z.is_packed() && op.out.is_packed());
  if (op.qkv.rows == 0) return;
  if (s.d_key > 256)
    fail(Errc::Unsupported, "the GPU runs the delta rule with keys of at most 256 values, not {}",
         s.d_key);
  auto p = zeroed<gpu::DeltaParams>();
  p.qkv = floats(op.qkv);
  p.z = floats(op.z);
  p.b = floats(op.b);
  p.a = floats(op.a);
  p.a_log = floats(op.a_log);
  p.dt_bias = floats(op.dt_bias);
  p.norm = floats(op.norm);
  p.state = floats(op.state);
  p.out = floats(op.out);
  p.n = static_cast<std::int32_t>(op.qkv.rows);
  p.n_key_heads = s.n_key_heads;
  p.n_value_heads = s.n_value_heads;
  p.d_key = s.d_key;
  p.d_value = s.d_value;
  p.gate_is_silu = s.output_gate == GateActivation::Silu;
  p.heads_alternate = s.heads_alternate;
  p.is_exact = precision_ == Precision::Exact;
  p.eps = op.eps;
  p.q_scale = 1.0f / std::sqrt(static_cast<float>(s.d_key));
  const bool has_whole_warps = s.d_key % gpu::kWarp == 0 && s.d_value % gpu::kWarp == 0;
  if (p.n == 1 && has_whole_warps && s.d_key <= 128 && s.d_value <= 128 &&
      reinterpret_cast<std::uintptr_t>(p.state) % 16 == 0)
    return launch("delta_step_128", p,
                  {.x = count(s.n_value_heads), .threads = gpu::kDeltaStepThreads});
  const bool is_chunked = precision_ != Precision::Exact && p.n >= gpu::kChunkRows &&
                          s.d_key == gpu::kChunkKey && s.d_value % gpu::kChunkColumns == 0 &&
                          is_multiple_of_16({p.qkv, p.out}) &&
                          shared_bytes_of_block() >= gpu::kWalkSharedBytes;
  constexpr unsigned kThreads = 256, kRowsOfBlock = kThreads / gpu::kWarp;
  if (is_chunked) {
    launch("prepare_chunks", p,
           {.x = pieces(std::int64_t{p.n} * s.n_key_heads, kRowsOfBlock), .threads = kThreads});
    walk_chunks(p);
  } else {
    launch("prepare_delta", p,
           {.x = count(p.n), .y = count(s.n_key_heads), .threads = threads_for(s.d_key, 128)});
    launch(s.d_key <= 64    ? "delta_rule_64"
           : s.d_key <= 128 ? "delta_rule_128"
                            : "delta_rule_256",
           p,
           {.x = pieces(s.d_value, gpu::kDeltaColumns),
            .y = count(s.n_value_heads),
            .threads = gpu::kDeltaThreads});
  }
  if (is_chunked && s.d_value == 4 * gpu::kWarp && is_multiple_of_16({p.out, p.z, p.norm}))
    launch("finish_rows", p,
           {.x = pieces(std::int64_t{p.n} * s.n_value_heads, kRowsOfBlock), .threads = kThreads});
  else
    launch("finish_delta", p,
           {.x = count(p.n), .y = count(s.n_value_heads), .threads = threads_for(s.d_value, 128)});
}

// As many chunks at a time as there is memory for.
void CudaBackend::walk_chunks(gpu::DeltaParams p) {
  constexpr std::int64_t kBytes = 64 << 20;
  const std::int64_t chunk_bytes = std::int64_t{2} * gpu::kChunkMatrixBytes * p.n_value_heads;
  const std::int64_t n = p.n, n_chunks = pieces(n, gpu::kChunkRows);
  const std::int64_t at_once =
      std::min(n_chunks, std::max<std::int64_t>(1, kBytes / chunk_bytes)) * gpu::kChunkRows;
  p.matrices = reinterpret_cast<std::uint16_t*>(
      scratch(Scratch::Partial, static_cast<std::size_t>(at_once / gpu::kChunkRows * chunk_bytes)));
  const std::int64_t conv_dim =
      2 * std::int64_t{p.n_key_heads} * p.d_key + std::int64_t{p.n_value_heads} * p.d_value;
  for (std::int64_t first = 0; first < n; first += at_once) {
    p.n = static_cast<std::int32_t>(std::min(at_once, n - first));
    launch("delta_matrices", p,
           {.x = pieces(p.n, gpu::kChunkRows),
            .y = count(p.n_value_heads),
            .threads = gpu::kChunkMatrixThreads,
            .shared_bytes = gpu::kMatricesSharedBytes});
    launch("delta_chunks", p,
           {.x = pieces(p.d_value, gpu::kChunkColumns),
            .y = count(p.n_value_heads),
            .threads = gpu::kChunkThreads,
            .shared_bytes = gpu::kWalkSharedBytes});
    p.qkv += at_once * conv_dim;
    p.a += at_once * p.n_value_heads;
    p.b += at_once * p.n_value_heads;
    p.out += at_once * p.n_value_heads * p.d_value;
  }
}

}  // namespace moeflux::cuda
