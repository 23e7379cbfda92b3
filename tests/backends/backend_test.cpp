// The list of backends: by name, and what is refused.
#include "backends/backend.h"

#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "support/expect_error.h"

namespace moeflux {
namespace {

TEST(BackendList, HasTheDefaultAndTellsThemApart) {
  ASSERT_FALSE(backend_list().empty());
  for (const BackendInfo& info : backend_list()) {
    EXPECT_FALSE(info.what.empty()) << info.name;
    EXPECT_EQ(&find_backend(info.name), &info) << info.name;
  }
  EXPECT_EQ(&find_backend(), &find_backend("cpu"));
  const BackendInfo& cuda = find_backend("cuda");
  EXPECT_EQ(&find_backend("auto"), cuda.missing().empty() ? &cuda : &find_backend("cpu"));
}

TEST(BackendList, EveryMachineRunsTheDefault) {
  EXPECT_EQ(find_backend().missing(), "");
  const auto backend = make_backend({.isa = "scalar", .n_threads = 3});
  EXPECT_EQ(backend->name(), "cpu (scalar, 3 threads)");
  EXPECT_EQ(backend->n_threads(), 3);
  EXPECT_FALSE(backend->drives_experts());
}

TEST(BackendList, UnknownNames) {
  for (const char* name : {"abacus", "CPU"}) {
    test::expect_error(Errc::BadInput, {name, "unknown", "cpu"}, [&] { find_backend(name); });
    test::expect_error(Errc::BadInput, {name, "unknown", "cpu"}, [&] { make_backend({}, name); });
  }
}

TEST(BackendList, UnknownInstructionSets) {
  test::expect_error(Errc::BadInput, {"\"mmx\"", "scalar"}, [] { make_backend({.isa = "mmx"}); });
  for (const std::string& isa : test::supported_isas())
    EXPECT_NE(make_backend({.isa = isa, .n_threads = 1})->name().find(isa), std::string::npos);
}

// More of anything never needs less, and nothing needs next to nothing.
TEST(BackendList, ScratchGrowsWithOperations) {
  const auto needed = find_backend().scratch_needed;
  const WidestOps ops{.matmul_values = 1 << 16,
                      .cols = 1024,
                      .d_model = 1024,
                      .ffn_rows = 64,
                      .d_ff = 2048,
                      .expert_rows = 512,
                      .d_expert = 512,
                      .d_query = 128,
                      .d_value = 128,
                      .d_latent = 0};
  EXPECT_GT(needed(ops, 4), needed({}, 4));
  EXPECT_GT(needed(ops, 8), needed(ops, 4));
  for (std::int64_t WidestOps::*member :
       {&WidestOps::matmul_values, &WidestOps::cols, &WidestOps::d_model, &WidestOps::ffn_rows,
        &WidestOps::d_ff, &WidestOps::expert_rows, &WidestOps::d_expert, &WidestOps::d_query,
        &WidestOps::d_value, &WidestOps::d_latent}) {
    WidestOps more = ops;
    more.*member = more.*member * 4 + 512;
    EXPECT_GE(needed(more, 4), needed(ops, 4));
  }
}

}  // namespace
}  // namespace moeflux
