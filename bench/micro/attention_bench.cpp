// How fast the CPU backend attends, for every type of key-value cache, and how fast it runs the
// gated delta rule. Shapes are those of released models.
//
//   attention_bench --benchmark_filter='gqa.*/f16/'            one thread
//   MOEFLUX_THREADS=16 attention_bench --benchmark_filter=decode
//
// MAC/s counts a multiplication and an addition; bytes_per_second the bytes of the cache. Times are
// wall-clock with several threads, processor time with one.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "backends/backend.h"
#include "random_operand.h"

namespace moeflux {
namespace {

int n_threads() {
  const char* text = std::getenv("MOEFLUX_THREADS");
  return text != nullptr ? std::atoi(text) : 1;
}

struct Cache {
  Cache(const KvShape& shape, Backend& backend)
      : memory(backend.allocate(shape.bytes(), MemoryKind::Device)), view{shape, memory.get()} {
    const RandomOperand rows(backend, shape.capacity, std::int64_t{shape.n_heads} * shape.d);
    backend.store_kv({view, rows, Positions(backend, 0, shape.capacity)});
    backend.wait_for_all();
  }
  std::unique_ptr<Buffer> memory;
  KvView view;
};

struct Call {
  std::int64_t n, first;  // new tokens, and where they begin
  const char* name() const { return n == 1 ? "decode" : "prefill"; }
  double pairs() const {  // of a query and a key it sees
    const auto rows = static_cast<double>(n);
    return rows * static_cast<double>(first) + rows * (rows + 1) / 2;
  }
};

void report(benchmark::State& state, double macs, std::uint64_t bytes) {
  state.counters["MAC/s"] = benchmark::Counter(macs, benchmark::Counter::kIsIterationInvariantRate,
                                               benchmark::Counter::kIs1000);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void run_gqa(benchmark::State& state, const AttentionSpec& spec, const Call& call, KvType type) {
  const auto backend = make_backend({.n_threads = n_threads()});
  const std::int64_t length = call.first + call.n;
  const Cache k({type, KvLayout::Tiles, spec.n_kv_heads, spec.d_head, length}, *backend);
  const Cache v({type, KvLayout::Rows, spec.n_kv_heads, spec.d_head, length}, *backend);
  const RandomOperand q(*backend, call.n, std::int64_t{spec.n_heads} * spec.query_head()),
      out(*backend, call.n, spec.q_dim());
  const Positions positions(*backend, call.first, call.n);
  for (auto _ : state) {
    backend->attention({.spec = &spec,
                        .q = q,
                        .k = k.view,
                        .v = v.view,
                        .sinks = {},
                        .positions = positions,
                        .out = out});
    backend->wait_for_all();
  }
  report(state, call.pairs() * spec.n_heads * 2 * spec.d_head,
         k.memory->bytes() + v.memory->bytes());
}

void run_mla(benchmark::State& state, const MlaSpec& spec, const Call& call, KvType type) {
  const auto backend = make_backend({.n_threads = n_threads()});
  const int d = spec.kv_rank + spec.d_rope;
  const Cache kv({type, KvLayout::Rows, 1, d, call.first + call.n}, *backend);
  const RandomOperand q_latent(*backend, call.n, std::int64_t{spec.n_heads} * spec.kv_rank),
      q(*backend, call.n, std::int64_t{spec.n_heads} * spec.d_query()),
      out(*backend, call.n, std::int64_t{spec.n_heads} * spec.kv_rank);
  const Positions positions(*backend, call.first, call.n);
  for (auto _ : state) {
    backend->latent_attention({.spec = &spec,
                               .q_latent = q_latent,
                               .q = q,
                               .kv = kv.view,
                               .positions = positions,
                               .out = out});
    backend->wait_for_all();
  }
  report(state, call.pairs() * spec.n_heads * (d + spec.kv_rank), kv.memory->bytes());
}

void run_mla_expanded(benchmark::State& state, const MlaSpec& spec, const Call& call, KvType type) {
  const auto backend = make_backend({.n_threads = n_threads()});
  const int d = spec.kv_rank + spec.d_rope, d_query = spec.d_nope + spec.d_rope;
  const std::int64_t head_rows = spec.d_nope + spec.d_value;
  const Cache kv({type, KvLayout::Rows, 1, d, call.first + call.n}, *backend);
  const RandomOperand q(*backend, call.n, std::int64_t{spec.n_heads} * d_query),
      b(*backend, spec.n_heads * head_rows, spec.kv_rank),
      out(*backend, call.n, std::int64_t{spec.n_heads} * spec.d_value);
  const Positions positions(*backend, call.first, call.n);
  for (auto _ : state) {
    backend->expanded_attention(
        {.spec = &spec,
         .keys = {b.weight(), head_rows, 0, spec.d_nope, true},
         .values = {b.weight(), head_rows, spec.d_nope, spec.d_value, false},
         .q = q,
         .kv = kv.view,
         .positions = positions,
         .out = out});
    backend->wait_for_all();
  }
  const auto expanding =
      static_cast<double>((call.first + call.n) * spec.n_heads * head_rows * spec.kv_rank);
  report(state, call.pairs() * spec.n_heads * (d_query + spec.d_value) + expanding,
         kv.memory->bytes());
}

void run_delta(benchmark::State& state, const GatedDeltaSpec& spec, std::int64_t n) {
  const auto backend = make_backend({.n_threads = n_threads()});
  const std::int64_t n_state = std::int64_t{spec.n_value_heads} * spec.d_key * spec.d_value;
  const RandomOperand qkv(*backend, n, spec.conv_dim()), z(*backend, n, spec.value_dim()),
      b(*backend, n, spec.n_value_heads), a(*backend, n, spec.n_value_heads),
      s(*backend, std::int64_t{spec.n_value_heads} * spec.d_key, spec.d_value),
      a_log(*backend, 1, spec.n_value_heads), dt_bias(*backend, 1, spec.n_value_heads),
      norm(*backend, 1, spec.d_value), out(*backend, n, spec.value_dim());
  for (auto _ : state) {
    backend->gated_delta({.spec = &spec,
                          .qkv = qkv,
                          .z = z,
                          .b = b,
                          .a = a,
                          .a_log = a_log,
                          .dt_bias = dt_bias,
                          .norm = norm,
                          .eps = 1e-6f,
                          .state = s,
                          .out = out});
    backend->wait_for_all();
  }
  report(state, static_cast<double>(3 * n * n_state),
         static_cast<std::uint64_t>(n_state) * sizeof(float));
}

void run_conv(benchmark::State& state, std::int64_t channels, std::int64_t n) {
  const auto backend = make_backend({.n_threads = n_threads()});
  const RandomOperand x(*backend, n, channels), weight(*backend, 4, channels),
      past(*backend, 3, channels), out(*backend, n, channels);
  for (auto _ : state) {
    backend->short_conv({.x = x, .weight = weight, .state = past, .out = out});
    backend->wait_for_all();
  }
  report(state, static_cast<double>(4 * n * channels),
         2 * static_cast<std::uint64_t>(n * channels) * sizeof(float));
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond);
  if (n_threads() > 1) bench->UseRealTime();
}

void add_all() {
  const Call calls[] = {{512, 0}, {256, 3840}, {512, 3584}, {1024, 3072}, {1, 4095}, {1, 32767}};
  for (const KvType type : kAllKvTypes) {
    for (const Call& call : calls) {
      const auto name = [&](const char* shape) {
        return fmt::format("{}/{}/{}{}_at{}", shape, kv_type_name(type), call.name(), call.n,
                           call.first);
      };
      for (const int heads : {16, 32}) {
        const AttentionSpec spec{.n_heads = heads,
                                 .n_kv_heads = 2,
                                 .d_head = 256,
                                 .has_output_gate = true,
                                 .scale = 1 / 16.0f};
        add(name(heads == 16 ? "gqa_35b" : "gqa_397b"),
            [=](benchmark::State& state) { run_gqa(state, spec, call, type); });
      }
      const MlaSpec mla{.n_heads = 128,
                        .q_rank = 1536,
                        .kv_rank = 512,
                        .d_nope = 128,
                        .d_rope = 64,
                        .d_value = 128,
                        .rope = {},
                        .scale = 0.1f,
                        .latent_norm_eps = 1e-6f};
      add(name("mla_671b"), [=](benchmark::State& state) { run_mla(state, mla, call, type); });
      if (call.n == 1) continue;
      add(name("mla_671b_expanded"),
          [=](benchmark::State& state) { run_mla_expanded(state, mla, call, type); });
    }
  }
  for (const std::int64_t n : {1, 512}) {
    const GatedDeltaSpec spec{
        .n_key_heads = 16, .n_value_heads = 32, .d_key = 128, .d_value = 128, .conv_width = 4};
    add(fmt::format("delta_35b/n{}", n),
        [=](benchmark::State& state) { run_delta(state, spec, n); });
    add(fmt::format("conv_35b/n{}", n),
        [=](benchmark::State& state) { run_conv(state, spec.conv_dim(), n); });
  }
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
