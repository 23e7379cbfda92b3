// Operations of the CUDA backend on the emulated GPU, against the scalar kernels of the CPU.
#include <numeric>

#include <gtest/gtest.h>

#include "backends/cuda_support.h"
#include "base/error.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::CudaAndCpu;

TEST(CudaBackend, Norms) {
  test::Random random(1);
  for (const std::int64_t d : {1, 31, 64, 1000, 2048}) {
    CudaAndCpu both;
    const auto x = both.floats(5, d, random.floats(5 * d));
    const auto w = both.floats(1, d, random.floats(d));
    const auto out = both.results(5, d), plain = both.results(5, d);
    both.gpu->rms_norm({.x = x.gpu, .weight = w.gpu, .eps = 1e-6f, .out = out.gpu});
    both.cpu->rms_norm({.x = x.cpu, .weight = w.cpu, .eps = 1e-6f, .out = out.cpu});
    both.gpu->rms_norm({.x = x.gpu, .weight = {}, .eps = 1e-6f, .out = plain.gpu});
    both.cpu->rms_norm({.x = x.cpu, .weight = {}, .eps = 1e-6f, .out = plain.cpu});
    EXPECT_LT(both.difference(out), 1e-6) << d;
    EXPECT_LT(both.difference(plain), 1e-6) << d;
  }
}

TEST(CudaBackend, NormsOfManyRows) {
  test::Random random(8);
  for (const std::int64_t d : {4, 31, 128, 1000, 1024, 2048, 8192, 8196}) {
    for (const std::int64_t gap : {0, 4, 1}) {
      CudaAndCpu both(Precision::Fine);
      auto x = both.floats(19, d + gap, random.floats(19 * (d + gap)));
      x.gpu.cols = x.cpu.cols = d;
      const auto w = both.floats(1, d, random.floats(d));
      const auto out = both.results(19, d), plain = both.results(19, d);
      both.gpu->rms_norm({.x = x.gpu, .weight = w.gpu, .eps = 1e-6f, .out = out.gpu});
      both.cpu->rms_norm({.x = x.cpu, .weight = w.cpu, .eps = 1e-6f, .out = out.cpu});
      both.gpu->rms_norm({.x = x.gpu, .weight = {}, .eps = 1e-6f, .out = plain.gpu});
      both.cpu->rms_norm({.x = x.cpu, .weight = {}, .eps = 1e-6f, .out = plain.cpu});
      EXPECT_LT(both.difference(out), 1e-6) << d;
      EXPECT_LT(both.difference(plain), 1e-6) << d;
    }
  }
}

TEST(CudaBackend, SumsBoundsAndCaps) {
  test::Random random(2);
  CudaAndCpu both;
  const auto x = both.floats(7, 129, random.floats(7 * 129, 3));
  const auto y = both.floats(7, 129, random.floats(7 * 129, 3));
  const auto scale = both.floats(1, 1, {0.75f});
  for (const auto& [backend, a, b, s] : {std::tuple(both.gpu.get(), x.gpu, y.gpu, scale.gpu),
                                         std::tuple(both.cpu.get(), x.cpu, y.cpu, scale.cpu)}) {
    backend->add({.x = a, .y = b});
    backend->add({.x = a, .y = b, .scale = s});
    backend->clamp({.x = a, .limit = 1.5f});
    backend->softcap({.x = b, .cap = 2.5f});
  }
  EXPECT_EQ(both.difference(x), 0);
  EXPECT_LT(both.difference(y), 1e-7);
}

TEST(CudaBackend, Rotation) {
  test::Random random(3);
  for (const bool interleaved : {false, true}) {
    for (const int n_rot : {2, 24, 64, 600}) {
      CudaAndCpu both;
      const int n_heads = 3;
      const std::int64_t stride = n_rot + 5;
      RopeSpec rope = make_rope(10000, n_rot, interleaved);
      rope.magnitude = 1.25f;
      const auto x = both.floats(4, n_heads * stride, random.floats(4 * n_heads * stride));
      const auto positions = both.ints(1, 4, {70000, 70001, 70002, 70003});
      both.gpu->rope({&rope, x.gpu, n_heads, stride, positions.gpu});
      both.cpu->rope({&rope, x.cpu, n_heads, stride, positions.cpu});
      EXPECT_LT(both.difference(x), 1e-6) << n_rot;
    }
  }
}

TEST(CudaBackend, RoutesAreThoseOfTheCpu) {
  test::Random random(4);
  for (int trial = 0; trial < 24; ++trial) {
    CudaAndCpu both;
    RouterSpec router;
    router.scoring = trial % 2 == 0 ? RouterScoring::Softmax : RouterScoring::Sigmoid;
    router.scores_chosen = trial % 3 == 0;
    router.normalize = trial % 5 != 0;
    router.scale = 1.5f;
    const int group_size = static_cast<int>(random.integer(3, 40));
    router.n_groups = trial % 4 == 3 ? 6 : 1;
    router.top_groups = trial % 4 == 3 ? 3 : 1;
    const std::int64_t n_experts = router.n_groups == 1 ? 8 * group_size : 6 * group_size;
    const std::int64_t top_k = random.integer(1, std::min<std::int64_t>(8, 3 * group_size));
    auto logits = random.floats(5 * n_experts, 4);
    std::fill_n(logits.begin(), 3, 1.0f);  // equals: the first one wins
    const auto x = both.floats(5, n_experts, logits);
    const auto bias = both.floats(1, n_experts, random.floats(n_experts, 0.2));
    const auto scales = both.floats(1, n_experts, random.floats(n_experts));
    const auto ids = both.ints(5, top_k, std::vector<std::int32_t>(5 * top_k, -1));
    const auto weights = both.results(5, top_k);
    const bool has_bias = trial % 2 == 1, has_scales = trial % 6 == 5;
    both.gpu->route({&router, x.gpu, has_bias ? bias.gpu : View{}, has_scales ? scales.gpu : View{},
                     ids.gpu, weights.gpu});
    both.cpu->route({&router, x.cpu, has_bias ? bias.cpu : View{}, has_scales ? scales.cpu : View{},
                     ids.cpu, weights.cpu});
    EXPECT_EQ(CudaAndCpu::read_ints(*both.gpu, ids.gpu), CudaAndCpu::read_ints(*both.cpu, ids.cpu));
    EXPECT_LT(both.difference(weights), 1e-6);
  }
}

TEST(CudaBackend, ExpertsAreCombined) {
  test::Random random(5);
  CudaAndCpu both;
  const std::int64_t n = 3, top_k = 4, d = 300;
  const auto experts = both.floats(n * top_k, d, random.floats(n * top_k * d));
  const auto weights = both.floats(n, top_k, random.floats(n * top_k));
  const auto shared = both.floats(n, d, random.floats(n * d));
  const auto gate = both.floats(n, 1, random.floats(n));
  for (int kind = 0; kind < 3; ++kind) {
    const auto out = both.results(n, d);
    const bool has_shared = kind > 0, has_gate = kind > 1;
    both.gpu->combine({experts.gpu, weights.gpu, has_shared ? shared.gpu : View{},
                       has_gate ? gate.gpu : View{}, out.gpu});
    both.cpu->combine({experts.cpu, weights.cpu, has_shared ? shared.cpu : View{},
                       has_gate ? gate.cpu : View{}, out.cpu});
    EXPECT_LT(both.difference(out), 1e-6) << kind;
  }
}

TEST(CudaBackend, LinearAttention) {
  test::Random random(6);
  struct Case {
    int key_heads, value_heads, d_key, d_value, width;
    GateActivation gate;
  };
  for (const Case& c : {Case{2, 4, 16, 32, 4, GateActivation::Silu},
                        Case{1, 3, 100, 40, 3, GateActivation::Sigmoid},
                        Case{2, 2, 160, 33, 2, GateActivation::Silu}}) {
    CudaAndCpu both;
    const GatedDeltaSpec spec{c.key_heads, c.value_heads, c.d_key, c.d_value, c.width, c.gate};
    const std::int64_t conv = spec.conv_dim(), heads = c.value_heads, values = spec.value_dim();
    const auto conv_weight = both.floats(c.width, conv, random.floats(c.width * conv));
    const auto conv_state = both.floats(c.width - 1, conv, random.floats((c.width - 1) * conv));
    const auto state =
        both.floats(heads * c.d_key, c.d_value, random.floats(heads * c.d_key * c.d_value));
    const auto a_log = both.floats(1, heads, random.floats(heads));
    const auto dt_bias = both.floats(1, heads, random.floats(heads));
    const auto norm = both.floats(1, c.d_value, random.floats(c.d_value));
    for (const std::int64_t n : {1, 5, 2}) {
      const auto x = both.floats(n, conv, random.floats(n * conv));
      const auto qkv = both.results(n, conv);
      both.gpu->short_conv({x.gpu, conv_weight.gpu, conv_state.gpu, qkv.gpu});
      both.cpu->short_conv({x.cpu, conv_weight.cpu, conv_state.cpu, qkv.cpu});
      EXPECT_LT(both.difference(qkv), 1e-6);
      EXPECT_EQ(both.difference(conv_state), 0);
      const auto z = both.floats(n, values, random.floats(n * values));
      const auto a = both.floats(n, heads, random.floats(n * heads));
      const auto b = both.floats(n, heads, random.floats(n * heads));
      const auto out = both.results(n, values);
      both.gpu->gated_delta({&spec, qkv.gpu, z.gpu, b.gpu, a.gpu, a_log.gpu, dt_bias.gpu, norm.gpu,
                             1e-6f, state.gpu, out.gpu});
      both.cpu->gated_delta({&spec, qkv.cpu, z.cpu, b.cpu, a.cpu, a_log.cpu, dt_bias.cpu, norm.cpu,
                             1e-6f, state.cpu, out.cpu});
      EXPECT_LT(both.difference(out), 1e-5) << c.d_key << " " << n;
      EXPECT_LT(both.difference(state), 1e-6);
    }
  }
}

// Many rows go in chunks, with a tail and with the state that other calls left.
TEST(CudaBackend, LinearAttentionInChunks) {
  test::Random random(7);
  struct Case {
    int key_heads, value_heads, d_value;
    bool heads_alternate;
    double decay;
  };
  for (const Case& c : {Case{2, 4, 32, false, 0}, Case{2, 4, 64, true, -5},
                        Case{1, 1, 96, false, -12}, Case{1, 2, 32, false, 3}}) {
    CudaAndCpu both(Precision::Fine, test::large_driver());
    GatedDeltaSpec spec{c.key_heads, c.value_heads, 128, c.d_value, 4, GateActivation::Silu};
    spec.heads_alternate = c.heads_alternate;
    const std::int64_t conv = spec.conv_dim(), heads = c.value_heads, values = spec.value_dim();
    const auto conv_weight = both.floats(4, conv, random.floats(4 * conv));
    const auto conv_state = both.floats(3, conv, random.floats(3 * conv));
    const auto state = both.floats(heads * 128, c.d_value, random.floats(heads * 128 * c.d_value));
    const auto a_log = both.floats(1, heads, random.floats(heads));
    const auto dt_bias = both.floats(1, heads, random.floats(heads));
    const auto norm = both.floats(1, c.d_value, random.floats(c.d_value));
    for (const std::int64_t n : {64, 1, 79, 130, 3, 193}) {
      const auto x = both.floats(n, conv, random.floats(n * conv, 2)), qkv = both.results(n, conv);
      both.gpu->short_conv({x.gpu, conv_weight.gpu, conv_state.gpu, qkv.gpu});
      both.cpu->short_conv({x.cpu, conv_weight.cpu, conv_state.cpu, qkv.cpu});
      EXPECT_LT(both.difference(qkv), 1e-6);
      EXPECT_EQ(both.difference(conv_state), 0);
      const auto z = both.floats(n, values, random.floats(n * values));
      auto decays = random.floats(n * heads);
      for (float& decay : decays) decay += static_cast<float>(c.decay);
      const auto a = both.floats(n, heads, decays);
      const auto b = both.floats(n, heads, random.floats(n * heads, 3));
      const auto out = both.results(n, values);
      both.gpu->gated_delta({&spec, qkv.gpu, z.gpu, b.gpu, a.gpu, a_log.gpu, dt_bias.gpu, norm.gpu,
                             1e-6f, state.gpu, out.gpu});
      both.cpu->gated_delta({&spec, qkv.cpu, z.cpu, b.cpu, a.cpu, a_log.cpu, dt_bias.cpu, norm.cpu,
                             1e-6f, state.cpu, out.cpu});
      EXPECT_LT(both.difference(out), 5e-5) << c.d_value << ", " << n;
      EXPECT_LT(both.difference(state), 5e-5) << c.d_value << ", " << n;
    }
  }
}

// The second time a list of operations comes it becomes a graph, and later ones run it with what
// was uploaded for them.
TEST(CudaBackend, ListsThatComeAgainAreGraphs) {
  CudaAndCpu both;
  auto& gpu = dynamic_cast<cuda::CudaBackend&>(*both.gpu);
  const auto x = both.floats(2, 64, std::vector<float>(128, 1));
  const auto y = both.floats(2, 64, std::vector<float>(128));
  both.gpu->wait_for_all();
  for (int turn = 1; turn <= 4; ++turn) {
    const std::vector<float> values(128, static_cast<float>(turn));
    both.gpu->upload(std::as_bytes(std::span(values)), x.gpu.bytes());
    for (int i = 0; i < 10; ++i) both.gpu->add({.x = x.gpu, .y = y.gpu});
    std::vector<float> read(128);
    both.gpu->download(y.gpu.bytes(), std::as_writable_bytes(std::span(read)));
    both.gpu->wait_for_all();
    EXPECT_EQ(read[77], 5.0f * static_cast<float>(turn * (turn + 1)));
  }
  EXPECT_EQ(gpu.n_graph_launches(), 3u);
}

TEST(CudaBackend, ALostDeviceIsAnError) {
  CudaAndCpu both;
  const auto x = both.floats(2, 64, std::vector<float>(128, 1));
  both.gpu->wait_for_all();
  test::fail_launches_after(3);
  EXPECT_THROW(
      {
        for (int i = 0; i < 10; ++i) both.gpu->add({.x = x.gpu, .y = x.gpu});
        both.gpu->wait_for_all();
      },
      Error);
  test::fail_launches_after(-1);
}

}  // namespace
}  // namespace moeflux
