// Every model we have golden values for, layer by layer against the reference implementation.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/verify/verify.h"
#include "source/safetensors.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

struct Model {
  std::string name;
  std::string path;
  std::string golden;
};

std::vector<Model> models() {
  std::vector<Model> list;
  for (const std::string& name : test::fixture_names()) {
    const std::string path = test::fixture_path(name);
    list.push_back({name, path, path + "/golden.safetensors"});
  }
  for (const std::string& path : test::family_checkpoints()) {
    const std::string name = path.substr(path.rfind('/') + 1);
    list.push_back({name, path, path + "/golden.safetensors"});
  }
  for (const std::string& name : test::golden_checkpoints(test::shared_path("fixtures"))) {
    const std::string path = test::shared_path("fixtures/" + name);
    list.push_back({"shared-" + name, path, path + "/golden.safetensors"});
  }
  for (const std::string name : {"demo", "demo-mla"})
    list.push_back(
        {name, test::source_path("models/" + name), test::data_path(name + "/golden.safetensors")});
  return list;
}

// What a golden file lets one check, by the names of its tensors alone.
std::set<std::string> expected_checks(const std::string& golden) {
  const auto file = open_tensor_file(golden);
  std::set<std::string> expected;
  for (const auto& [full_name, info] : file->tensors()) {
    const bool has_prompt = full_name.size() > 3 && full_name[0] == 'p' && full_name[2] == '.';
    const std::string prompt = has_prompt ? full_name.substr(0, 2) + ": " : ": ";
    const std::string name = has_prompt ? full_name.substr(3) : full_name;
    if (name == "hidden") {
      const std::int64_t n_layers = info.shape[0] - 1;
      expected.insert(prompt + "embedding");
      for (std::int64_t i = 0; i + 1 < n_layers; ++i)
        expected.insert(fmt::format("{}layer {}", prompt, i));
      expected.insert(prompt + "final norm");
    } else if (name.starts_with("route.") && name.ends_with(".ids")) {
      expected.insert(fmt::format("{}routes {}", prompt, name.substr(6, name.size() - 10)));
    } else if (name == "mtp_logits") {
      expected.insert(prompt + "mtp");
    } else if (name == "final" || name == "logits" || name == "greedy") {
      expected.insert(prompt + name);
    }
  }
  return expected;
}

enum class Experts { Resident, Streamed };

struct Case {
  Model model;
  std::int64_t chunk;
  Experts experts;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Model& model : models()) {
    for (const std::int64_t chunk : {0, 1, 7}) {
      for (const Experts experts : {Experts::Resident, Experts::Streamed})
        list.push_back({model, chunk, experts});
    }
  }
  return list;
}

EngineOptions options_of(const Case& test, Precision precision) {
  EngineOptions options{.n_threads = 2,
                        .context_length = 1024,
                        .memory_bytes = std::uint64_t{2} << 30,
                        .precision = precision};
  // The least there may be: of models as small as these a tenth more would hold all experts.
  if (test.experts == Experts::Streamed)
    options.memory_bytes = Engine(test.model.path, options).plan().floor_bytes();
  return options;
}

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, EveryCheckPasses) {
  const auto& [model, chunk, experts] = GetParam();
  Engine engine(model.path, options_of(GetParam(), Precision::Exact));
  const MemoryPlan& plan = engine.plan();
  if (experts == Experts::Streamed && plan.min_slots < plan.max_slots) {
    EXPECT_LT(plan.n_slots, plan.max_slots);
  }
  std::set<std::string> seen;
  const bool passed =
      verify_model(engine, model.golden, {.tolerance = test::kGoldenTolerance, .chunk = chunk},
                   [&](const VerifyCheck& check) {
                     EXPECT_TRUE(check.passed)
                         << check.prompt << " " << check.name << ": " << check.difference.relative
                         << " " << check.difference.value << " " << check.note;
                     EXPECT_LE(check.difference.relative, test::kGoldenTolerance) << check.name;
                     EXPECT_GE(check.difference.cosine, 1 - test::kGoldenTolerance) << check.name;
                     if (check.name == "greedy") {
                       EXPECT_EQ(check.note, "24/24 tokens");
                     }
                     seen.insert(check.prompt + ": " + check.name);
                   });
  EXPECT_TRUE(passed);
  EXPECT_EQ(seen, expected_checks(model.golden));
}

// With activations rounded to 16 bits. Each product with quantized weights adds an error of 2e-5 to
// 4e-5; models as small as these, of random weights, dampen none of it.
TEST_P(Golden, FineIsClose) {
  const auto& [model, chunk, experts] = GetParam();
  Engine engine(model.path, options_of(GetParam(), Precision::Fine));
  verify_model(engine, model.golden, {.tolerance = 1, .chunk = chunk},
               [&](const VerifyCheck& check) {
                 if (check.name == "logits" || check.name == "mtp") {
                   EXPECT_LT(check.difference.relative, test::kFineTolerance)
                       << check.prompt << " " << check.name;
                 }
               });
}

std::string test_name(const testing::TestParamInfo<Case>& test) {
  std::string name =
      fmt::format("{}_in_{}{}", test.param.model.name,
                  test.param.chunk == 0 ? "one" : fmt::format("pieces_of_{}", test.param.chunk),
                  test.param.experts == Experts::Streamed ? "_streamed" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(cases()), test_name);

TEST(GoldenFiles, OfEveryFamily) {
  std::set<std::string_view> seen;
  for (const Model& model : models())
    seen.insert(describe_model(*open_source(model.path)).family->name);
  for (const Family* family : families()) EXPECT_TRUE(seen.contains(family->name)) << family->name;
}

// The goldens differ in what they hold; all of it together is what we claim to check.
TEST(GoldenFiles, HoldWhatWeClaimToCheck) {
  std::set<std::string> kinds;
  int n_greedy = 0, n_mtp = 0;
  for (const std::string& name : test::fixture_names()) {
    const auto checks = expected_checks(test::fixture_path(name) + "/golden.safetensors");
    EXPECT_EQ(checks.count(": logits"), 1u) << name;
    EXPECT_EQ(checks.count(": final norm"), 1u) << name;
    n_greedy += static_cast<int>(checks.count(": greedy"));
    n_mtp += static_cast<int>(checks.count(": mtp"));
    EXPECT_TRUE(std::any_of(checks.begin(), checks.end(), [](const auto& c) {
      return c.find("routes") != c.npos;
    })) << name;
  }
  EXPECT_EQ(n_greedy, 12);
  EXPECT_EQ(n_mtp, 4);
}

}  // namespace
}  // namespace moeflux
