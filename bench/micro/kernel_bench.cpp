// How fast one thread runs the kernels of the CPU backend, for every instruction set this machine
// has.
//
//   kernel_bench --benchmark_filter='avx.*/fine/.*/n1$'
//
// Products with one row of activations, and exact ones with up to 16, read weights that lie in
// memory, not in a cache: their bytes_per_second is to be compared with that of `memory_read`;
// n1_near has them in a cache and shows the arithmetic alone. Products with more rows are bound by
// arithmetic: their OP/s counts a multiplication and an addition per weight and row.
#include <algorithm>
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
#include "random_floats.h"
#include "random_operand.h"

namespace moeflux {
namespace {

using cpu::KernelTable;
using cpu::RoundedLayout;

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

// Matrices of kRows rows, one after the other in memory; next() goes round them.
class Matrices {
 public:
  Matrices(Backend& memory_of, const WeightFormat& format, std::int64_t cols,
           std::size_t at_least_bytes)
      : data_bytes_(data_row_bytes(format, cols) * kRows),
        view_{.format = format, .rows = kRows, .cols = cols} {
    if (format.kind == WeightKind::Affine || format.kind == WeightKind::Fp8Block) {
      const std::int64_t rows = format.kind == WeightKind::Affine ? kRows : kRows / format.block;
      plane_bytes_ = rows * scales_per_row(format, cols) * scale_bytes();
    }
    count_ = static_cast<std::int64_t>(at_least_bytes) / data_bytes_ + 1;
    memory_ = memory_of.allocate(static_cast<std::uint64_t>(count_ * bytes()), MemoryKind::Device,
                                 Backing::Huge);
    fill();
  }

  std::int64_t bytes() const { return data_bytes_ + 2 * plane_bytes_; }  // of one matrix

  const WeightView& next() {
    view_.data = memory_->host() + next_ * bytes();
    view_.scales = view_.data + data_bytes_;
    view_.biases = view_.scales + plane_bytes_;
    next_ = (next_ + 1) % count_;
    return view_;
  }
  Weight next_operand() {
    const WeightView& view = next();
    const auto offset = [&](const std::byte* plane) {
      return static_cast<std::uint64_t>(plane - memory_->host());
    };
    return {.format = view.format,
            .rows = view.rows,
            .cols = view.cols,
            .buffer = memory_.get(),
            .data = offset(view.data),
            .scales = offset(view.scales),
            .biases = offset(view.biases)};
  }

 private:
  std::int64_t scale_bytes() const {
    return static_cast<std::int64_t>(dtype_size(view_.format.scale_dtype));
  }

  void fill() {
    std::mt19937_64 random(2);
    std::byte* at = memory_->host();
    // Any code will do. Numbers get exponents as in a model: subnormal ones would cost extra.
    const bool bf16 = view_.format.kind == WeightKind::BF16;
    const bool fp8 = view_.format.kind == WeightKind::Fp8Block;
    for (std::int64_t i = 0; i < data_bytes_; ++i) {
      std::uint64_t byte = random();
      if (bf16 && i % 2 == 1) byte = (byte & 0x83) | 0x3C;  // 2^-7 to 2
      if (fp8) byte = (byte & 0xBF) | 0x20;                 // 2^-3 to 2
      at[i] = static_cast<std::byte>(byte & 0xFF);
    }
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
  std::unique_ptr<Buffer> memory_;
};

void report(benchmark::State& state, std::int64_t bytes, double operations) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * bytes);
  if (operations > 0) {
    state.counters["OP"] = benchmark::Counter(operations * static_cast<double>(state.iterations()),
                                              benchmark::Counter::kIsRate);
  }
}

void memory_read(benchmark::State& state) {
  HugeBuffer memory(kFarBytes);
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
  return make_backend({.isa = table.name, .n_threads = 1});
}

void exact(benchmark::State& state, const KernelTable& table, const WeightFormat& format,
           std::int64_t n) {
  const auto backend = one_thread(table);
  Matrices weights(*backend, format, kCols, n <= 16 ? kFarBytes : 0);
  const RandomOperand x(*backend, n, kCols), y(*backend, n, kRows);
  for (auto _ : state) {
    backend->matmul({.weight = weights.next_operand(), .x = x, .y = y});
    backend->wait_for_all();
  }
  report(state, weights.bytes(), 2.0 * static_cast<double>(n * kRows * kCols));
}

void rounded_matmul(benchmark::State& state, const KernelTable& table, const WeightFormat& format,
                    int digits, std::int64_t n, bool far) {
  const auto backend = one_thread(table);
  Matrices weights(*backend, arranged(format, true), kCols, far ? kFarBytes : 0);
  const RoundedLayout layout(format, kCols, digits);
  const std::vector<float> x = random_floats(n * kCols);
  AlignedBuffer rounded(static_cast<std::size_t>(n * layout.row_bytes));
  for (std::int64_t i = 0; i < n; ++i) {
    table.rounded->quantize(layout, x.data() + i * kCols, rounded.data() + i * layout.row_bytes);
  }
  std::vector<float> y(static_cast<std::size_t>(n * kRows));
  std::vector<float> scratch(static_cast<std::size_t>(cpu::rounded_scratch_floats(layout)));
  for (auto _ : state) {
    table.rounded->matmul({.weight = &weights.next(),
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
  const RoundedLayout layout(format, kCols, 2);
  const std::vector<float> x = random_floats(kCols);
  AlignedBuffer rounded(static_cast<std::size_t>(layout.row_bytes));
  for (auto _ : state) {
    table.rounded->quantize(layout, x.data(), rounded.data());
    benchmark::ClobberMemory();
  }
  report(state, kCols * 4, 0);
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMicrosecond);
}

void add_all(const KernelTable& table) {
  const std::string isa = table.name;
  for (const auto& [name, format] : kFormats) {
    const WeightFormat& f = format;
    for (const std::int64_t n : {1, 2, 4, 8, 16, 64, 512}) {
      add(fmt::format("{}/exact/{}/n{}", isa, name, n),
          [&, n](benchmark::State& state) { exact(state, table, f, n); });
    }
    if (!cpu::has_rounded(arranged(format, true))) continue;
    for (const int digits : {1, 2}) {
      for (const std::int64_t n : {1, 16, 64, 512}) {
        add(fmt::format("{}/{}/{}/n{}", isa, digits == 1 ? "fast" : "fine", name, n),
            [&, n, digits](benchmark::State& state) {
              rounded_matmul(state, table, f, digits, n, n == 1);
            });
      }
      add(fmt::format("{}/{}/{}/n1_near", isa, digits == 1 ? "fast" : "fine", name),
          [&, digits](benchmark::State& state) {
            rounded_matmul(state, table, f, digits, 1, false);
          });
    }
    add(fmt::format("{}/quantize/{}", isa, name),
        [&](benchmark::State& state) { quantize(state, table, f); });
  }
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
