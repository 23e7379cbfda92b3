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
#include "base/aligned_buffer.h"
#include "random_floats.h"

namespace moeflux {
namespace {

int n_threads() {
  const char* text = std::getenv("MOEFLUX_THREADS");
  return text != nullptr ? std::atoi(text) : 1;
}

struct Cache {
  Cache(const KvShape& shape, Backend& backend)
      : memory(shape.bytes()), view{shape, memory.data()} {
    const std::int64_t width = std::int64_t{shape.n_heads} * shape.d;
    const std::vector<float> rows = random_floats(shape.capacity * width);
    backend.store_kv({view, rows.data(), width, shape.capacity, 0});
  }
  AlignedBuffer memory;
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

void run_gqa(benchmark::State& state, const GatedAttentionSpec& spec, const Call& call,
             KvType type) {
  const auto backend = make_cpu_backend({.n_threads = n_threads()});
  const std::int64_t length = call.first + call.n, head = 2 * spec.d_head;
  const Cache k({type, KvLayout::Tiles, spec.n_kv_heads, spec.d_head, length}, *backend);
  const Cache v({type, KvLayout::Rows, spec.n_kv_heads, spec.d_head, length}, *backend);
  const std::vector<float> q = random_floats(call.n * spec.n_heads * head);
  std::vector<float> out(q.size() / 2);
  for (auto _ : state) {
    backend->attention({.spec = &spec,
                        .q = q.data(),
                        .gate = q.data() + spec.d_head,
                        .token_stride = spec.n_heads * head,
                        .head_stride = head,
                        .k = k.view,
                        .v = v.view,
                        .n = call.n,
                        .first_position = call.first,
                        .out = out.data()});
  }
  report(state, call.pairs() * spec.n_heads * 2 * spec.d_head, k.memory.size() + v.memory.size());
}

void run_mla(benchmark::State& state, const MlaSpec& spec, const Call& call, KvType type) {
  const auto backend = make_cpu_backend({.n_threads = n_threads()});
  const int d = spec.kv_rank + spec.d_rope;
  const Cache kv({type, KvLayout::Rows, 1, d, call.first + call.n}, *backend);
  const std::vector<float> q = random_floats(call.n * spec.n_heads * spec.kv_rank),
                           q_rope = random_floats(call.n * spec.n_heads * spec.d_rope);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    backend->latent_attention({.spec = &spec,
                               .q_latent = q.data(),
                               .q_rope = q_rope.data(),
                               .q_rope_token_stride = std::int64_t{spec.n_heads} * spec.d_rope,
                               .q_rope_head_stride = spec.d_rope,
                               .kv = kv.view,
                               .n = call.n,
                               .first_position = call.first,
                               .out = out.data()});
  }
  report(state, call.pairs() * spec.n_heads * (d + spec.kv_rank), kv.memory.size());
}

void run_mla_expanded(benchmark::State& state, const MlaSpec& spec, const Call& call, KvType type) {
  const auto backend = make_cpu_backend({.n_threads = n_threads()});
  const int d = spec.kv_rank + spec.d_rope, d_query = spec.d_nope + spec.d_rope;
  const std::int64_t head_rows = spec.d_nope + spec.d_value;
  const Cache kv({type, KvLayout::Rows, 1, d, call.first + call.n}, *backend);
  const std::vector<float> q = random_floats(call.n * spec.n_heads * d_query),
                           b = random_floats(spec.n_heads * head_rows * spec.kv_rank);
  const WeightView weight{.format = {.kind = WeightKind::F32},
                          .rows = spec.n_heads * head_rows,
                          .cols = spec.kv_rank,
                          .data = std::as_bytes(std::span(b)).data(),
                          .scales = nullptr,
                          .biases = nullptr};
  std::vector<float> out(static_cast<std::size_t>(call.n * spec.n_heads * spec.d_value));
  for (auto _ : state) {
    backend->expanded_attention({.spec = &spec,
                                 .keys = {weight, head_rows, 0, spec.d_nope, true},
                                 .values = {weight, head_rows, spec.d_nope, spec.d_value, false},
                                 .q = q.data(),
                                 .token_stride = std::int64_t{spec.n_heads} * d_query,
                                 .head_stride = d_query,
                                 .kv = kv.view,
                                 .n = call.n,
                                 .first_position = call.first,
                                 .out = out.data()});
  }
  const auto expanding =
      static_cast<double>((call.first + call.n) * spec.n_heads * head_rows * spec.kv_rank);
  report(state, call.pairs() * spec.n_heads * (d_query + spec.d_value) + expanding,
         kv.memory.size());
}

void run_delta(benchmark::State& state, const GatedDeltaSpec& spec, std::int64_t n) {
  const auto backend = make_cpu_backend({.n_threads = n_threads()});
  const std::int64_t n_state = std::int64_t{spec.n_value_heads} * spec.d_key * spec.d_value;
  std::vector<float> qkv = random_floats(n * spec.conv_dim()),
                     z = random_floats(n * spec.value_dim()),
                     b = random_floats(n * spec.n_value_heads),
                     a = random_floats(n * spec.n_value_heads), s = random_floats(n_state);
  const std::vector<float> a_log = random_floats(spec.n_value_heads),
                           dt_bias = random_floats(spec.n_value_heads),
                           norm = random_floats(spec.d_value);
  std::vector<float> out(z.size());
  for (auto _ : state) {
    backend->gated_delta({.spec = &spec,
                          .qkv = qkv.data(),
                          .z = z.data(),
                          .b = b.data(),
                          .a = a.data(),
                          .a_log = a_log.data(),
                          .dt_bias = dt_bias.data(),
                          .norm = norm.data(),
                          .eps = 1e-6f,
                          .state = s.data(),
                          .n = n,
                          .out = out.data()});
  }
  report(state, static_cast<double>(3 * n * n_state), s.size() * sizeof(float));
}

void run_conv(benchmark::State& state, std::int64_t channels, std::int64_t n) {
  const auto backend = make_cpu_backend({.n_threads = n_threads()});
  const std::vector<float> x = random_floats(n * channels), weight = random_floats(4 * channels);
  std::vector<float> past = random_floats(3 * channels), out(x.size());
  for (auto _ : state)
    backend->short_conv({x.data(), weight.data(), past.data(), channels, 4, n, out.data()});
  report(state, static_cast<double>(4 * n * channels), 2 * x.size() * sizeof(float));
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
        const GatedAttentionSpec spec{
            .n_heads = heads, .n_kv_heads = 2, .d_head = 256, .rope = {}, .scale = 1 / 16.0f};
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
