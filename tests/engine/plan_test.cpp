#include "engine/plan.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/measure/forecast.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

// Made by hand: 2 layers of latent attention, 16 experts, 4 per token.
ModelConfig small_config() {
  ModelConfig config;
  config.d_model = 64;
  config.n_vocab = 100;
  config.context_length = 4096;
  MlaSpec mixer;
  mixer.n_heads = 2;
  mixer.kv_rank = 32;
  mixer.d_nope = mixer.d_value = 16;
  mixer.d_rope = 8;
  MoeSpec moe;
  moe.n_experts = 16;
  moe.top_k = 4;
  moe.d_expert = 32;
  config.layers = {{mixer, moe}, {mixer, moe}};
  return config;
}

ModelSizes small_sizes() {
  ModelSizes sizes;
  sizes.dense_bytes = 1'000'000;
  sizes.dense_bytes_per_token = 900'000;
  sizes.banks = {{.n_experts = 16, .top_k = 4, .expert_bytes = 100'000},
                 {.n_experts = 16, .top_k = 4, .expert_bytes = 50'000}};
  sizes.n_experts_total = 32;
  sizes.expert_bytes_total = 16 * 150'000;
  sizes.slots = {{.slot_bytes = 100'032, .n_experts = 32, .banks = {0, 1}}};
  return sizes;
}

MemoryPlan plan_with(std::uint64_t memory, std::uint64_t min_slots = 0) {
  return plan_memory(small_config(), small_sizes(),
                     {.memory_bytes = memory, .context_length = 1000, .min_slots = min_slots});
}

TEST(ModelSizesTest, SumsOverTheBanks) {
  EXPECT_EQ(small_sizes().top_k(), 4);
  EXPECT_EQ(small_sizes().experts_per_token(), 8);
  EXPECT_EQ(small_sizes().expert_bytes_per_token(), 600'000);
}

TEST(PlanTest, FixedParts) {
  const MemoryPlan plan = plan_with(0);
  EXPECT_EQ(plan.dense_bytes, 1'000'000);
  EXPECT_EQ(plan.context_bytes, 2 * 1008 * (32 + 8) * sizeof(float));  // whole tiles of 16
  EXPECT_GT(plan.scratch_bytes(), 512 * 64 * sizeof(float));
  EXPECT_EQ(plan.fixed_bytes(), plan.dense_bytes + plan.context_bytes + plan.scratch_bytes());
}

TEST(PlanTest, CountsTheTrueBytesOfTheContext) {
  PlanOptions options{.memory_bytes = 1u << 30, .context_length = 1600};
  const auto context_bytes = [&](KvType type) {
    options.kv_type = type;
    return plan_memory(small_config(), small_sizes(), options).context_bytes;
  };
  EXPECT_EQ(context_bytes(KvType::F32), 2u * 1600 * 40 * 4);
  EXPECT_EQ(context_bytes(KvType::F16), 2u * 1600 * 40 * 2);
  EXPECT_EQ(context_bytes(KvType::BF16), 2u * 1600 * 40 * 2);
  EXPECT_EQ(context_bytes(KvType::Q8), 2u * 1600 * (40 + 2 * 2));  // two groups of up to 32
}

TEST(PlanTest, TheFloorHoldsTheExpertsOfOneTokenInOneLayer) {
  const MemoryPlan plan = plan_with(0);
  EXPECT_EQ(plan.min_slots, 4);
  EXPECT_EQ(plan.floor_bytes(), plan.fixed_bytes() + 4 * 100'032);
  EXPECT_FALSE(plan.fits());
  EXPECT_TRUE(plan_with(plan.floor_bytes()).fits());
  EXPECT_FALSE(plan_with(plan.floor_bytes() - 1).fits());
  EXPECT_EQ(plan_with(plan.floor_bytes()).n_slots, 4);
}

TEST(PlanTest, MoreSlotsMayBeNeeded) {
  EXPECT_EQ(plan_with(0, 6).min_slots, 6);
  EXPECT_EQ(plan_with(0, 6).n_slots, 6);
  EXPECT_EQ(plan_with(0, 2).min_slots, 4);      // never fewer than one token uses
  EXPECT_EQ(plan_with(0, 1000).min_slots, 32);  // never more than there are experts
}

TEST(PlanTest, TheRestIsCacheAtMostAllExperts) {
  const std::uint64_t fixed = plan_with(0).fixed_bytes();
  EXPECT_EQ(plan_with(fixed + 10 * 100'032).n_slots, 10);
  EXPECT_EQ(plan_with(fixed + 11 * 100'032 - 1).n_slots, 10);
  EXPECT_LE(plan_with(fixed + 11 * 100'032 - 1).used_bytes(), fixed + 11 * 100'032 - 1);
  EXPECT_EQ(plan_with(std::uint64_t{1} << 40).n_slots, 32);
  EXPECT_EQ(plan_with(0).all_bytes(), fixed + 32 * 100'032);
}

TEST(PlanTest, PassesAreAsLongAsMemoryIsEasilyFound) {
  const auto batch_with = [](std::uint64_t memory) {
    return plan_memory(small_config(), small_sizes(),
                       {.memory_bytes = memory, .context_length = 8192})
        .max_batch;
  };
  EXPECT_EQ(batch_with(0), kFewestTokensPerPass);
  EXPECT_EQ(batch_with(std::uint64_t{1} << 40), kMostTokensPerPass);
  std::int64_t last = 0;
  for (std::uint64_t memory = 1u << 20; memory < 1u << 30; memory += memory / 8) {
    const std::int64_t batch = batch_with(memory);
    EXPECT_GE(batch, last);
    last = batch;
  }
  // Never at the price of an expert that would be resident otherwise.
  const MemoryPlan least =
      plan_memory(small_config(), small_sizes(),
                  {.memory_bytes = 0, .context_length = 8192, .max_batch = kFewestTokensPerPass});
  EXPECT_EQ(batch_with(least.all_bytes()), kFewestTokensPerPass);
  // A session cannot fill a longer pass.
  EXPECT_EQ(plan_memory(small_config(), small_sizes(),
                        {.memory_bytes = std::uint64_t{1} << 40, .context_length = 300})
                .max_batch,
            300);
}

TEST(PlanTest, SessionsAndTheirCopiesCount) {
  PlanOptions options{.memory_bytes = 1u << 30, .context_length = 1600, .max_batch = 512};
  const MemoryPlan one = plan_memory(small_config(), small_sizes(), options);
  options.n_sessions = 3;
  EXPECT_EQ(plan_memory(small_config(), small_sizes(), options).context_bytes,
            3 * one.context_bytes);
}

TEST(PlanTest, BuffersOfTheReaderCount) {
  PlanOptions options{.memory_bytes = 0, .context_length = 1000, .reader_bytes = 12345};
  EXPECT_EQ(plan_memory(small_config(), small_sizes(), options).fixed_bytes(),
            plan_with(0).fixed_bytes() + 12345);
}

TEST(PlanTest, AModelWithoutExpertsHasNoCache) {
  ModelSizes sizes;
  sizes.dense_bytes = 1000;
  const MemoryPlan plan =
      plan_memory(small_config(), sizes, {.memory_bytes = 1u << 30, .context_length = 10});
  EXPECT_EQ(plan.n_slots, 0);
  EXPECT_EQ(plan.floor_bytes(), plan.fixed_bytes());
}

TEST(PlanTest, SizesOfTheDemoModel) {
  const auto source = open_source(source_path("models/demo"));
  const ModelDescription model = describe_model(*source);
  const ExpertStore store(source, model.index.experts);
  const ModelSizes sizes = measure_sizes(*source, model, store.classes());
  EXPECT_EQ(sizes.dense_bytes, WeightStore::bytes_needed(model.index.tensors));
  EXPECT_EQ(sizes.n_experts_total, store.n_experts_total());
  EXPECT_LT(sizes.dense_bytes_per_token, sizes.dense_bytes);
  std::uint64_t bytes = 0;
  for (int bank = 0; bank < store.n_banks(); ++bank) {
    for (int e = 0; e < store.n_experts(bank); ++e) bytes += store.read_bytes({bank, e});
  }
  EXPECT_EQ(sizes.expert_bytes_total, bytes);
  int n_moe = 0;
  for (const LayerSpec& layer : model.config.layers)
    n_moe += std::holds_alternative<MoeSpec>(layer.ffn);
  EXPECT_EQ(sizes.banks.size(), static_cast<std::size_t>(n_moe));
  EXPECT_EQ(sizes.expert_bytes_per_token(),
            sizes.experts_per_token() * sizes.banks[0].expert_bytes);
}

PlanOptions share(double cached) {
  return with_cached_share(small_config(), small_sizes(), {.context_length = 1000}, cached);
}

TEST(ForecastTest, SharesOfTheExperts) {
  EXPECT_EQ(share(0).memory_bytes, plan_with(0).floor_bytes());
  EXPECT_EQ(share(1).memory_bytes, plan_with(0).all_bytes());
  EXPECT_EQ(plan_with(share(0.5).memory_bytes).n_slots, 16);
}

TEST(ForecastTest, FollowsTheLimitModel) {
  const PlanOptions options = share(0.5);
  const Forecast result =
      forecast(small_config(), small_sizes(), options, {.disk = 1e9, .memory = 1e10});
  EXPECT_DOUBLE_EQ(result.hit_rates.uniform, 0.5);
  EXPECT_DOUBLE_EQ(result.bytes.dense, 900'000);
  EXPECT_DOUBLE_EQ(result.bytes.experts, 600'000);
  EXPECT_DOUBLE_EQ(result.bytes.context, 2 * 1008 * (32 + 8) * sizeof(float));
  EXPECT_NEAR(result.uniform.disk, 0.5 * 600'000 / 1e9, 1e-12);
  EXPECT_GE(result.typical.tokens_per_second(), result.uniform.tokens_per_second());
  EXPECT_NEAR(result.disk_bytes_per_token, (1 - result.hit_rates.typical) * 600'000, 1e-6);
}

TEST(ForecastTest, LongContextsAreReadOnlyAsFarAsAConversationGoes) {
  const auto context = [](std::int64_t length) {
    return forecast(small_config(), small_sizes(), {.context_length = length}, {1e9, 1e10})
        .bytes.context;
  };
  EXPECT_EQ(context(4096), context(kForecastLength));
  EXPECT_LT(context(100), context(200));
}

TEST(ForecastTest, RecommendsWhatMakesTheDriveFastEnough) {
  const auto recommend = [](double disk) {
    return recommended_bytes(small_config(), small_sizes(), {.context_length = 1000},
                             {.disk = disk, .memory = 1e10});
  };
  EXPECT_EQ(recommend(1e12), share(0).memory_bytes);  // the drive is never the limit
  EXPECT_EQ(recommend(1e6), share(1).memory_bytes);   // it always is
  const std::uint64_t middle = recommend(2e9);
  EXPECT_GT(middle, share(0).memory_bytes);
  EXPECT_LT(middle, share(1).memory_bytes);
  PlanOptions options{.memory_bytes = middle, .context_length = 1000};
  const auto disk_bound = [&] {
    return forecast(small_config(), small_sizes(), options, {.disk = 2e9, .memory = 1e10})
        .typical.disk_bound();
  };
  EXPECT_FALSE(disk_bound());
  options.memory_bytes = middle - small_sizes().slots[0].slot_bytes;
  EXPECT_TRUE(disk_bound());
}

}  // namespace
}  // namespace moeflux::test
