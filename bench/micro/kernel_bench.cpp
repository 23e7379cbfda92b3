// How fast one thread runs the kernels of the CPU backend, for every instruction set this machine
// has.
//
//   kernel_bench --benchmark_filter='avx.*/q8/.*/n1$'
//
// Products with one row of activations read weights that lie in memory, not in a cache: their
// bytes_per_second is to be compared with that of `memory_read`. Products with more rows are bound
// by arithmetic: their OP/s counts a multiplication and an addition per weight and row.
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "backends/backend.h"
#include "backends/cpu/kernels.h"
#include "base/aligned_buffer.h"

namespace moeflux {
namespace {

using cpu::KernelTable;
using cpu::Q8Layout;

constexpr std::size_t kFarBytes = std::size_t{192} << 20;  // more than a last-level cache
constexpr std::int64_t kRows = 256;                        // of a matrix, for one call
constexpr std::int64_t kCols = 2048;

struct NamedFormat {
  const char* name;
  WeightFormat format;
};

const NamedFormat kFormats[] = {
    {"4bit_g64", {WeightKind::Affine, 4, 64, 0, DType::BF16}},
    {"8bit_g64", {WeightKind::Affine, 8, 64, 0, DType::BF16}},
    {"2bit_g64", {WeightKind::Affine, 2, 64, 0, DType::BF16}},
    {"3bit_g64", {WeightKind::Affine, 3, 64, 0, DType::BF16}},
    {"bf16", {WeightKind::BF16, 0, 0, 0, DType::BF16}},
    {"fp8_b128", {WeightKind::Fp8Block, 0, 0, 128, DType::F32}},
};

std::vector<float> random_floats(std::int64_t n) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& value : out) value = values(random);
  return out;
}

// Matrices of kRows rows, one after the other in memory; next() goes round them.
class Matrices {
 public:
  Matrices(const WeightFormat& format, std::int64_t cols, std::size_t at_least_bytes)
      : data_bytes_(data_row_bytes(format, cols) * kRows),
        view_{.format = format, .rows = kRows, .cols = cols} {
    if (format.kind == WeightKind::Affine || format.kind == WeightKind::Fp8Block) {
      const std::int64_t rows = format.kind == WeightKind::Affine ? kRows : kRows / format.block;
      plane_bytes_ = rows * scales_per_row(format, cols) * scale_bytes();
    }
    count_ = static_cast<std::int64_t>(at_least_bytes) / data_bytes_ + 1;
    memory_ = AlignedBuffer(static_cast<std::size_t>(count_ * bytes()));
    fill();
  }

  std::int64_t bytes() const { return data_bytes_ + 2 * plane_bytes_; }  // of one matrix

  const WeightView& next() {
    view_.data = memory_.data() + next_ * bytes();
    view_.scales = view_.data + data_bytes_;
    view_.biases = view_.scales + plane_bytes_;
    next_ = (next_ + 1) % count_;
    return view_;
  }

 private:
  std::int64_t scale_bytes() const {
    return static_cast<std::int64_t>(dtype_size(view_.format.scale_dtype));
  }

  void fill() {
    std::mt19937_64 random(2);
    std::byte* at = memory_.data();
    // Any code will do; numbers get exponents of moderate size.
    const unsigned mask = view_.format.kind == WeightKind::Affine ? 0xFF : 0x3F;
    for (std::int64_t i = 0; i < data_bytes_; ++i) at[i] = static_cast<std::byte>(random() & mask);
    const auto scale = std::bit_cast<std::uint32_t>(0.01f);
    for (std::int64_t i = 0; i < 2 * plane_bytes_; i += scale_bytes()) {
      const std::uint32_t stored = scale_bytes() == 2 ? scale >> 16 : scale;  // BF16 or F32
      std::memcpy(at + data_bytes_ + i, &stored, static_cast<std::size_t>(scale_bytes()));
    }
    for (std::int64_t i = 1; i < count_; ++i) {
      std::memcpy(at + i * bytes(), at, static_cast<std::size_t>(bytes()));
    }
  }

  std::int64_t data_bytes_, plane_bytes_ = 0, count_ = 0, next_ = 0;
  WeightView view_;
  AlignedBuffer memory_;
};

void report(benchmark::State& state, std::int64_t bytes, double operations) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * bytes);
  if (operations > 0) {
    state.counters["OP"] = benchmark::Counter(operations * static_cast<double>(state.iterations()),
                                              benchmark::Counter::kIsRate);
  }
}

void memory_read(benchmark::State& state) {
  AlignedBuffer memory(kFarBytes);
  std::memset(memory.data(), 1, memory.size());
  const auto* words = static_cast<const std::uint64_t*>(static_cast<const void*>(memory.data()));
  for (auto _ : state) {
    std::uint64_t sums[16] = {};
    for (std::size_t i = 0; i + 16 <= memory.size() / 8; i += 16) {
      for (std::size_t k = 0; k < 16; ++k) sums[k] += words[i + k];
    }
    benchmark::DoNotOptimize(sums);
  }
  report(state, static_cast<std::int64_t>(memory.size()), 0);
}

std::unique_ptr<Backend> one_thread(const KernelTable& table) {
  return make_cpu_backend({.cpu_isa = table.name, .n_threads = 1});
}

void exact(benchmark::State& state, const KernelTable& table, const WeightFormat& format,
           std::int64_t n) {
  Matrices weights(format, kCols, n == 1 ? kFarBytes : 0);
  const auto backend = one_thread(table);
  const std::vector<float> x = random_floats(n * kCols);
  std::vector<float> y(static_cast<std::size_t>(n * kRows));
  for (auto _ : state) backend->matmul({weights.next(), x.data(), kCols, n, y.data(), kRows});
  report(state, weights.bytes(), 2.0 * static_cast<double>(n * kRows * kCols));
}

void q8_matmul(benchmark::State& state, const KernelTable& table, const WeightFormat& format,
               std::int64_t n) {
  Matrices weights(format, kCols, n == 1 ? kFarBytes : 0);
  const Q8Layout layout(format, kCols);
  const std::vector<float> x = random_floats(n * kCols);
  AlignedBuffer rounded(static_cast<std::size_t>(n * layout.row_bytes));
  for (std::int64_t i = 0; i < n; ++i) {
    table.q8->quantize(layout, x.data() + i * kCols, rounded.data() + i * layout.row_bytes,
                       nullptr);
  }
  std::vector<float> y(static_cast<std::size_t>(n * kRows));
  std::vector<float> scratch(static_cast<std::size_t>(cpu::q8_scratch_floats(layout)));
  for (auto _ : state) {
    table.q8->matmul({.weight = &weights.next(),
                      .layout = &layout,
                      .row = 0,
                      .n_rows = kRows,
                      .x = rounded.data(),
                      .n = n,
                      .y = y.data(),
                      .y_stride = kRows,
                      .rows_out = nullptr,
                      .scratch = scratch.data()});
  }
  report(state, weights.bytes(), 2.0 * static_cast<double>(n * kRows * kCols));
}

void quantize(benchmark::State& state, const KernelTable& table, const WeightFormat& format) {
  const Q8Layout layout(format, kCols);
  const std::vector<float> x = random_floats(kCols);
  AlignedBuffer rounded(static_cast<std::size_t>(layout.row_bytes));
  for (auto _ : state) {
    table.q8->quantize(layout, x.data(), rounded.data(), nullptr);
    benchmark::ClobberMemory();
  }
  report(state, kCols * 4, 0);
}

// One token of the 35B's attention, with `length` tokens in the cache.
void attention(benchmark::State& state, const KernelTable& table, std::int64_t length) {
  const GatedAttentionSpec spec{
      .n_heads = 16, .n_kv_heads = 2, .d_head = 256, .rope = {}, .scale = 1.0f / 16};
  const std::int64_t q_size = spec.n_heads * spec.d_head, kv_size = spec.n_kv_heads * spec.d_head;
  const std::vector<float> q = random_floats(q_size), gate = random_floats(q_size),
                           k = random_floats(length * kv_size), v = random_floats(length * kv_size);
  std::vector<float> out(static_cast<std::size_t>(q_size));
  const auto backend = one_thread(table);
  for (auto _ : state) {
    backend->attention({.spec = &spec,
                        .q = q.data(),
                        .gate = gate.data(),
                        .token_stride = q_size,
                        .head_stride = spec.d_head,
                        .k = k.data(),
                        .v = v.data(),
                        .n = 1,
                        .first_position = length - 1,
                        .out = out.data()});
  }
  report(state, 2 * length * kv_size * 4, 4.0 * static_cast<double>(length * q_size));
}

// One token of the 35B's gated delta rule.
void gated_delta(benchmark::State& state, const KernelTable& table) {
  const GatedDeltaSpec spec{
      .n_key_heads = 16, .n_value_heads = 32, .d_key = 128, .d_value = 128, .conv_width = 4};
  const std::int64_t heads = spec.n_value_heads, state_size = heads * spec.d_key * spec.d_value;
  const std::vector<float> qkv = random_floats(spec.conv_dim()), z = random_floats(4096),
                           small = random_floats(heads), norm = random_floats(spec.d_value);
  std::vector<float> memory(static_cast<std::size_t>(state_size)), out(4096);
  const auto backend = one_thread(table);
  for (auto _ : state) {
    backend->gated_delta({.spec = &spec,
                          .qkv = qkv.data(),
                          .z = z.data(),
                          .b = small.data(),
                          .a = small.data(),
                          .a_log = small.data(),
                          .dt_bias = small.data(),
                          .norm = norm.data(),
                          .eps = 1e-6f,
                          .state = memory.data(),
                          .n = 1,
                          .out = out.data()});
  }
  report(state, state_size * 4, 8.0 * static_cast<double>(state_size));
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMicrosecond);
}

void add_all(const KernelTable& table) {
  const std::string isa = table.name;
  for (const auto& [name, format] : kFormats) {
    const WeightFormat& f = format;
    for (const std::int64_t n : {1, 16}) {
      add(fmt::format("{}/exact/{}/n{}", isa, name, n),
          [&, n](benchmark::State& state) { exact(state, table, f, n); });
    }
    if (!cpu::has_q8(format)) continue;
    for (const std::int64_t n : {1, 16, 64, 512}) {
      add(fmt::format("{}/q8/{}/n{}", isa, name, n),
          [&, n](benchmark::State& state) { q8_matmul(state, table, f, n); });
    }
    add(fmt::format("{}/quantize/{}", isa, name),
        [&](benchmark::State& state) { quantize(state, table, f); });
  }
  for (const std::int64_t length : {512, 8192}) {
    add(fmt::format("{}/attention/{}", isa, length),
        [&, length](benchmark::State& state) { attention(state, table, length); });
  }
  add(fmt::format("{}/gated_delta", isa),
      [&](benchmark::State& state) { gated_delta(state, table); });
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  moeflux::add("memory_read", moeflux::memory_read);
  for (const moeflux::cpu::KernelTable* table : moeflux::cpu::supported_kernels()) {
    moeflux::add_all(*table);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
