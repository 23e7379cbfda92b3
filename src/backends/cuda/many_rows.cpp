// Products of many rows of activations.
#include <algorithm>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/products.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

static_assert(sizeof(ExpertPlace) == gpu::kWordsOfExpert * sizeof(std::uint64_t));
static_assert(Weight::kNoPlane == gpu::kAbsentPlane);

// Rows from which on weights are opened once for all tiles, not in each.
constexpr std::int64_t kOpenedFrom = 512;
constexpr std::int64_t kPanelBytes = 64 << 20;  // of opened weights

bool are_alike(const gpu::DeviceWeight& a, const gpu::DeviceWeight& b) {
  return a.kind == b.kind && a.bits == b.bits && a.group == b.group;
}

gpu::Gate gate_kind(const FfnActivation& a) {
  switch (a.kind) {
    case FfnActivation::Kind::Silu:
      return gpu::Gate::Silu;
    case FfnActivation::Kind::Gelu:
      return gpu::Gate::Gelu;
    case FfnActivation::Kind::ClampedSwiglu:
      return gpu::Gate::ClampedSwiglu;
  }
  return gpu::Gate::None;
}

// Of weights that are opened on the way: all of it is of one format.
std::string_view kernel_name(const gpu::ProductParams& p) {
  constexpr std::string_view kAny = "product_any";
  const gpu::DeviceWeight &a = p.weights[0], &b = p.weights[1];
  if (!gpu::opens_in_chunks(a)) return kAny;
  if (p.result.gate != gpu::Gate::None && !are_alike(a, b)) return kAny;
  switch (a.kind) {
    case gpu::Kind::F32:
      return kAny;
    case gpu::Kind::F16:
      return "product_f16";
    case gpu::Kind::BF16:
      return "product_bf16";
    case gpu::Kind::Fp8Block:
      return "product_fp8";
    case gpu::Kind::Fp4:
      return "product_fp4";
    case gpu::Kind::Affine:
      return a.bits == 2   ? "product_affine_2"
             : a.bits == 3 ? "product_affine_3"
             : a.bits == 4 ? "product_affine_4"
             : a.bits == 5 ? "product_affine_5"
             : a.bits == 6 ? "product_affine_6"
             : a.bits == 8 ? "product_affine_8"
                           : kAny;
  }
  return kAny;
}

// Whatever memory weights lie in.
bool opens_in_registers(const gpu::ProductParams& p) {
  const gpu::DeviceWeight &a = p.weights[0], &b = p.weights[1];
  if (p.result.n_columns % 8 != 0 || !gpu::opens_in_registers(a)) return false;
  return p.result.gate == gpu::Gate::None ||
         (are_alike(a, b) && a.scale_type == b.scale_type && a.zero == b.zero);
}

const float* expert_biases(const View& view) {
  MOEFLUX_ASSERT(view.empty() || view.is_packed());
  return floats(view);
}

// What a product of `weight` writes.
gpu::ResultParams result_of(const Weight& weight, const View& bias, const View& y) {
  auto r = zeroed<gpu::ResultParams>();
  r.y = floats(y);
  r.y_stride = y.stride;
  r.biases[0] = expert_biases(bias);
  r.n_columns = static_cast<std::int32_t>(weight.rows);
  r.are_pairs = reinterpret_cast<std::uintptr_t>(r.y) % 8 == 0 && y.stride % 2 == 0;
  return r;
}
gpu::ResultParams hidden_of(const Weight& gate, const View& gate_bias, const View& up_bias,
                            const FfnActivation& activation, const View& hidden) {
  gpu::ResultParams r = result_of(gate, gate_bias, hidden);
  r.biases[1] = expert_biases(up_bias);
  r.n_columns *= 2;
  r.gate = gate_kind(activation);
  r.alpha = activation.alpha;
  r.limit = activation.limit;
  return r;
}

}  // namespace

void CudaBackend::many_rows(const MatmulOp& op) {
  if (op.x.rows == 0) return;
  auto p = zeroed<gpu::ProductParams>();
  p.result = result_of(op.weight, op.bias, op.y);
  p.weights[0] = device_weight(op.weight);
  p.x = floats(op.x);
  p.x_stride = op.x.stride;
  p.n = static_cast<std::int32_t>(op.x.rows);
  product(p, op.x.rows, op.x.rows);
}

void CudaBackend::many_rows(const FfnOp& op) {
  const std::int64_t n = op.rows_in.empty() ? op.x.rows : op.rows_in.cols;
  if (n == 0) return;
  auto p = zeroed<gpu::ProductParams>();
  p.result = hidden_of(op.gate, op.gate_bias, op.up_bias, op.activation, op.hidden);
  p.weights[0] = device_weight(op.gate);
  p.weights[1] = device_weight(op.up);
  p.x = floats(op.x);
  p.x_stride = op.x.stride;
  p.rows = ints(op.rows_in);
  p.divisor = 1;
  p.n = static_cast<std::int32_t>(n);
  product(p, n, n);

  p.result = result_of(op.down, op.down_bias, op.y);
  p.result.rows = ints(op.rows_out);
  p.weights[0] = device_weight(op.down);
  p.x = floats(op.hidden);
  p.x_stride = op.hidden.stride;
  p.rows = nullptr;
  product(p, n, n);
}

void CudaBackend::experts_of_many_rows(const ExpertsOp& op, const std::uint64_t* places) {
  const std::int64_t n_pairs = op.ids.size();
  if (n_pairs == 0) return;
  MOEFLUX_ASSERT(op.ids.is_packed());
  const std::int64_t n_experts = op.spec->n_experts;
  const int rows_per_tile = precision_ == Precision::Exact ? gpu::kExactRows : gpu::kProductRows;
  const std::int64_t most_tiles = std::min(n_pairs, n_experts + n_pairs / rows_per_tile);

  auto lists = zeroed<gpu::ListPairsParams>();
  const std::size_t tile_bytes = static_cast<std::size_t>(most_tiles) * sizeof(gpu::RowTile);
  const std::size_t place_bytes = static_cast<std::size_t>(n_experts) * sizeof(ExpertPlace);
  const CUdeviceptr at =
      scratch(Scratch::Lists,
              place_bytes + tile_bytes + static_cast<std::size_t>(n_pairs + 2 * n_experts + 1) * 4);
  lists.ids = ints(op.ids);
  lists.places = places;
  lists.places_here = reinterpret_cast<std::uint64_t*>(at);
  lists.tiles = reinterpret_cast<gpu::RowTile*>(at + place_bytes);
  lists.pairs = reinterpret_cast<std::int32_t*>(at + place_bytes + tile_bytes);
  lists.counts = lists.pairs + n_pairs;
  lists.begins = lists.counts + n_experts;
  lists.n_tiles = lists.begins + n_experts;
  lists.n_pairs = static_cast<std::int32_t>(n_pairs);
  lists.n_experts = static_cast<std::int32_t>(n_experts);
  lists.rows_per_tile = rows_per_tile;
  launch("list_pairs", lists, {.x = count(n_experts), .threads = n_pairs > 4096 ? 1024u : 128u});
  launch("list_tiles", lists, {.threads = 32});

  auto p = zeroed<gpu::ProductParams>();
  p.places = lists.places_here;
  p.slots = address(op.table.slots, 0);
  p.tiles = lists.tiles;
  p.n_tiles = lists.n_tiles;
  p.rows = lists.pairs;
  p.n = static_cast<std::int32_t>(n_pairs);

  p.result = hidden_of(op.table.gate, op.gate_bias, op.up_bias, op.spec->activation, op.hidden);
  p.result.rows = lists.pairs;
  p.weights[0] = device_weight(op.table.gate);
  p.weights[1] = device_weight(op.table.up);
  p.first_matrix = 0;
  p.x = floats(op.h);
  p.x_stride = op.h.stride;
  p.divisor = static_cast<std::int32_t>(op.ids.cols);
  product(p, most_tiles * rows_per_tile, op.h.rows);

  p.result = result_of(op.table.down, op.down_bias, op.out);
  p.result.rows = lists.pairs;
  p.weights[0] = device_weight(op.table.down);
  p.first_matrix = 2;
  p.x = floats(op.hidden);
  p.x_stride = op.hidden.stride;
  p.divisor = 1;
  product(p, most_tiles * rows_per_tile, n_pairs);
}

// Of at most `most_rows`, in tiles; with n_x rows of f32, which are p.x or, without tiles, p.rows
// of it.
void CudaBackend::product(gpu::ProductParams& p, std::int64_t most_rows, std::int64_t n_x) {
  const gpu::DeviceWeight& w = p.weights[0];
  if (precision_ == Precision::Exact) {
    launch("exact_product", p,
           {.x = pieces(p.result.n_columns, gpu::kExactColumns),
            .y = pieces(most_rows, gpu::kExactRows),
            .threads = gpu::kExactThreads});
    return;
  }
  if (p.tiles == nullptr && p.result.gate == gpu::Gate::None &&
      p.result.n_columns <= gpu::kNarrowColumns &&
      std::int64_t{p.result.n_columns} * w.cols <= gpu::kNarrowWeights) {
    launch("narrow_product", p,
           {.x = pieces(most_rows, gpu::kNarrowRows),
            .threads = gpu::kNarrowThreads,
            .shared_bytes = static_cast<unsigned>(p.result.n_columns * w.cols) * 4});
    return;
  }
  // Large tiles must be enough for all processors.
  const std::int64_t opened_tiles = std::int64_t{pieces(most_rows, gpu::kOpenedRows)} *
                                    pieces(p.result.n_columns, gpu::kOpenedColumns);
  const bool is_large = p.tiles == nullptr && most_rows >= kOpenedFrom &&
                        4 * opened_tiles >= 3 * device_.n_processors();
  const bool is_direct = opens_in_registers(p) && (precision_ == Precision::Fine || !is_large);
  p.unit = gpu::unit_of(w);
  if (p.result.gate != gpu::Gate::None) p.unit = std::min(p.unit, gpu::unit_of(p.weights[1]));
  p.result.scale = 1 / p.unit;
  const bool is_fine = precision_ == Precision::Fine;
  const auto is_half = [](const gpu::DeviceWeight& weight) {
    return weight.kind == gpu::Kind::F16 || weight.kind == gpu::Kind::BF16;
  };
  const bool is_exact_half =
      is_half(w) && (p.result.gate == gpu::Gate::None || is_half(p.weights[1]));
  // Routed experts take one half even then: what is rounded shows less in a sum of several, and
  // their weights are exact where scales are bfloats.
  const bool is_one = !is_fine || (is_direct && p.tiles != nullptr);
  p.n_parts = is_one ? 1 : is_direct || is_exact_half ? 2 : 3;
  p.rows_per_tile = gpu::kProductRows;
  round(p, n_x, is_direct);
  if (is_large && !is_direct) {
    opened_product(p);
  } else {
    // A product of few columns is cut into more tiles, so that all processors have some.
    const unsigned columns = pieces(p.result.n_columns, gpu::kProductColumns);
    const auto enough = count(device_.n_processors());
    while (!is_direct && p.tiles == nullptr && p.rows_per_tile > 32 &&
           columns * pieces(most_rows, p.rows_per_tile) < enough)
      p.rows_per_tile /= 2;
    launch(!is_direct       ? kernel_name(p)
           : p.n_parts == 2 ? "direct_product_4_fine"
                            : "direct_product_4",
           p,
           {.x = columns,
            .y = pieces(most_rows, p.rows_per_tile),
            .threads = gpu::kProductThreads,
            .shared_bytes = static_cast<unsigned>(is_direct ? gpu::direct_shared_bytes(p.n_parts)
                                                            : gpu::kProductSharedBytes)});
  }
  rounded_at_ = n_enqueued_;
}

// Rows of p.x become halves, p.n_parts for each number.
void CudaBackend::round(gpu::ProductParams& p, std::int64_t n_x, bool is_direct) {
  const gpu::DeviceWeight& w = p.weights[0];
  const std::int64_t part = pieces(w.cols, gpu::kTileDepth) * gpu::kTileDepth;
  const std::int64_t stride = part * p.n_parts;
  const std::int64_t means = is_direct ? 16 * pieces(w.cols / w.group, 16) : 0;
  const auto half_bytes = static_cast<std::size_t>(n_x * stride) * sizeof(std::uint16_t);
  const auto mean_bytes = static_cast<std::size_t>(n_x * means) * sizeof(std::uint16_t);
  const CUdeviceptr halves =
      scratch(Scratch::Activations,
              half_bytes + mean_bytes + static_cast<std::size_t>(n_x) * sizeof(float));
  auto rounding = zeroed<gpu::RoundRowsParams>();
  rounding.x = static_cast<const float*>(p.x);
  rounding.x_stride = p.x_stride;
  rounding.out = reinterpret_cast<std::uint16_t*>(halves);
  rounding.out_stride = stride;
  rounding.scales = reinterpret_cast<float*>(halves + half_bytes + mean_bytes);
  rounding.cols = w.cols;
  rounding.n_parts = p.n_parts;
  if (is_direct) {
    rounding.means = reinterpret_cast<std::uint16_t*>(halves + half_bytes);
    rounding.means_stride = means;
    rounding.group = w.group;
  }
  if (p.tiles == nullptr) {
    rounding.rows = p.rows;
    p.rows = nullptr;
  }
  // Products of the same rows often follow each other.
  const auto* raw = reinterpret_cast<const std::byte*>(&rounding);
  if (n_enqueued_ != rounded_at_ ||
      !std::equal(raw, raw + sizeof rounding, rounded_.begin(), rounded_.end())) {
    rounded_.assign(raw, raw + sizeof rounding);
    launch(is_direct ? "round_rows_direct" : "round_rows", rounding,
           {.x = count(n_x), .threads = threads_for(part / 8, 256)});
  }
  p.x = rounding.out;
  p.x_stride = stride;
  p.x_scales = rounding.scales;
  p.x_means = rounding.means;
  p.means_stride = means;
}

void CudaBackend::opened_product(const gpu::ProductParams& p) {
  const std::int64_t n_columns = p.result.n_columns, row_bytes = p.x_stride * 2;
  const std::int64_t all = pieces(n_columns, gpu::kOpenedColumns) * gpu::kOpenedColumns;
  const std::int64_t fit = kPanelBytes / row_bytes / gpu::kOpenedColumns * gpu::kOpenedColumns;
  const std::int64_t at_once = std::min(all, std::max<std::int64_t>(fit, gpu::kOpenedColumns));
  auto opening = zeroed<gpu::OpenParams>();
  opening.weights[0] = p.weights[0];
  opening.weights[1] = p.weights[1];
  opening.out = reinterpret_cast<std::uint16_t*>(
      scratch(Scratch::Partial, static_cast<std::size_t>(at_once * row_bytes)));
  opening.out_stride = p.x_stride;
  opening.is_gated = p.result.gate != gpu::Gate::None;
  opening.unit = p.unit;
  opening.n_parts = p.n_parts;
  auto product = zeroed<gpu::OpenedProductParams>();
  product.result = p.result;
  product.x = static_cast<const std::uint16_t*>(p.x);
  product.weights = opening.out;
  product.stride = p.x_stride;
  product.x_scales = p.x_scales;
  product.n = p.n;
  const bool is_large = device_.most_shared_bytes() >= (200u << 10);
  const int bytes = is_large ? gpu::opened_shared_bytes(64, 4) : gpu::opened_shared_bytes(32, 3);
  for (std::int64_t first = 0; first < n_columns; first += at_once) {
    const std::int64_t n = std::min(at_once, n_columns - first);
    opening.first = product.first_column = static_cast<std::int32_t>(first);
    opening.n = product.n_columns = static_cast<std::int32_t>(n);
    launch("open_columns", opening, {.x = pieces(n * (p.x_stride / 32), 256), .threads = 256});
    launch(is_large ? "product_of_opened_large" : "product_of_opened_little", product,
           {.x = pieces(p.n, gpu::kOpenedRows),
            .y = pieces(n, gpu::kOpenedColumns),
            .threads = gpu::kOpenedThreads,
            .shared_bytes = static_cast<unsigned>(bytes)});
  }
}

}  // namespace moeflux::cuda
