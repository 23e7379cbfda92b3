#include "engine/model_catalog.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/model_plan.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

class ModelCatalogTest : public testing::Test {
 protected:
  void link(const std::string& model, const std::string& name) {
    const fs::path path = directory_.file(name);
    fs::create_directories(path.parent_path());
    fs::create_directory_symlink(test::source_path("models/" + model), path);
  }
  void write(const std::string& name, const std::string& content) {
    fs::create_directories(fs::path(directory_.file(name)).parent_path());
    directory_.write(name, content);
  }
  static std::vector<std::string> names(const std::vector<CatalogEntry>& entries) {
    std::vector<std::string> list;
    for (const CatalogEntry& each : entries) list.push_back(each.name);
    return list;
  }
  std::vector<std::string> names() const { return names(list_models(directory_.path())); }

  test::TempDir directory_;
};

TEST_F(ModelCatalogTest, ModelsAreFoundOnTwoLevels) {
  link("demo", "small");
  link("demo-mla", "org/Other");
  link("demo", ".hidden/model");
  link("demo", ".cache");
  link("demo", "a/b/too-deep");
  write("README.md", "about them");
  write("notes/todo.txt", "nothing");
  const std::vector<CatalogEntry> models = list_models(directory_.path());
  ASSERT_EQ(names(models), (std::vector<std::string>{"org/Other", "small"}));
  EXPECT_EQ(models[0].family, "deepseek_v3");
  EXPECT_EQ(models[0].format, "mlx");
  EXPECT_EQ(models[0].path, directory_.path() + "/org/Other");
  EXPECT_EQ(models[1].family, "qwen3_5_moe");
  EXPECT_EQ(models[1].format, "mlx");
  EXPECT_EQ(models[1].problem, "");
  EXPECT_GT(models[1].bytes, 21'000'000u);
  EXPECT_LT(models[1].bytes, 22'000'000u);
  EXPECT_GT(models[1].n_parameters, 1'000'000);
  EXPECT_GT(models[1].expert_bits, 2);
  EXPECT_LT(models[1].expert_bits, 17);
  EXPECT_GT(models[1].modified, 1'500'000'000);
}

TEST_F(ModelCatalogTest, ADirectoryCanBeTheModel) {
  const std::vector<CatalogEntry> models = list_models(test::source_path("models/demo"));
  ASSERT_EQ(names(models), std::vector<std::string>{"demo"});
  EXPECT_EQ(models[0].problem, "");
  link("demo", "here");
  EXPECT_EQ(names(list_models(directory_.file("here/"))), std::vector<std::string>{"here"});
}

TEST_F(ModelCatalogTest, WhatCannotBeOpenedSaysWhy) {
  link("demo", "fine");
  write("no-weights/config.json", R"({"model_type": "qwen3_5_moe"})");
  write("llama/model.gguf", "GGUF");
  write("strange/config.json", R"({"model_type": "t5"})");
  write("strange/model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  write("torn/config.json", "{");
  write("torn/model.safetensors", "x");
  const std::vector<CatalogEntry> models = list_models(directory_.path());
  ASSERT_EQ(names(models),
            (std::vector<std::string>{"fine", "llama", "no-weights", "strange", "torn"}));
  EXPECT_EQ(models[0].problem, "");
  EXPECT_NE(models[1].problem.find("inside of its header"), std::string::npos);
  EXPECT_NE(models[2].problem.find("no weights"), std::string::npos) << models[2].problem;
  EXPECT_NE(models[3].problem.find("\"t5\" is not supported"), std::string::npos)
      << models[3].problem;
  EXPECT_NE(models[4].problem, "");
  EXPECT_EQ(models[4].bytes, 2u);
}

TEST_F(ModelCatalogTest, FilesOfGguf) {
  const std::string fixture = test::data_path("fixtures/gguf-qwen3moe");
  const auto copy = [&](const std::string& from, const std::string& name) {
    fs::create_directories(fs::path(directory_.file(name)).parent_path());
    fs::copy_file(fixture + "/" + from, directory_.file(name));
  };
  int n_parts = 0;
  for (const auto& entry : fs::directory_iterator(fixture)) {
    const std::string part = entry.path().filename().string();
    if (part.ends_with(".gguf")) copy(part, part), ++n_parts;
  }
  ASSERT_GT(n_parts, 1);
  const std::string other = test::data_path("fixtures/gguf-mixtral/model.gguf");
  write("alone/config.json", "{}");
  fs::copy_file(other, directory_.file("alone/mixtral-Q4.gguf"));
  write("org/many/config.json", "{}");
  fs::copy_file(other, directory_.file("org/many/a.gguf"));
  fs::copy_file(other, directory_.file("org/many/b.gguf"));
  const std::vector<CatalogEntry> models = list_models(directory_.path());
  ASSERT_EQ(names(models),
            (std::vector<std::string>{"alone", "model", "org/many/a", "org/many/b"}));
  for (const CatalogEntry& each : models) {
    EXPECT_EQ(each.problem, "");
    EXPECT_EQ(each.format, "gguf");
    EXPECT_GT(each.bytes, 20'000u);
  }
  EXPECT_EQ(models[0].family, "mixtral");
  EXPECT_EQ(models[1].family, "qwen3_moe");
  EXPECT_EQ(models[2].path, directory_.path() + "/org/many/a.gguf");
  EXPECT_EQ(find_model(models, "b").path, directory_.path() + "/org/many/b.gguf");
}

TEST_F(ModelCatalogTest, TheHubsCache) {
  const std::string commit(40, 'a');
  const auto add = [&](const std::string& folder, const std::string& from,
                       const std::string& name) {
    const std::string blob = folder + "/blobs/" + std::to_string(std::hash<std::string>()(name));
    write(folder + "/refs/main", commit);
    fs::create_directories(directory_.file(folder + "/blobs"));
    fs::create_directories(directory_.file(folder + "/snapshots/" + commit));
    fs::copy_file(from, directory_.file(blob));
    fs::create_symlink(fs::path("../..") / "blobs" / fs::path(blob).filename(),
                       directory_.file(folder + "/snapshots/" + commit + "/" + name));
  };
  for (const auto& each : fs::directory_iterator(test::source_path("models/demo"))) {
    if (each.is_regular_file())
      add("models--maker--demo", each.path().string(), each.path().filename().string());
  }
  const std::string gguf = test::data_path("fixtures/gguf-mixtral/model.gguf");
  add("models--maker--one", gguf, "x-Q4_K_M.gguf");
  add("models--maker--two", gguf, "y-Q4_K_M.gguf");
  add("models--maker--two", gguf, "y-Q8_0.gguf");
  write("models--maker--begun/blobs/x.part", "half");
  fs::create_directories(directory_.file("models--maker--begun/snapshots"));
  write(".locks/models--maker--demo/x.lock", "");
  const std::vector<CatalogEntry> models = list_models(directory_.path());
  ASSERT_EQ(names(models), (std::vector<std::string>{"maker/demo", "maker/one",
                                                     "maker/two/y-Q4_K_M", "maker/two/y-Q8_0"}));
  for (const CatalogEntry& each : models) EXPECT_EQ(each.problem, "");
  EXPECT_GT(models[0].bytes, 21'000'000u);
  const auto name = [&](std::string_view word) { return find_model(models, word).name; };
  EXPECT_EQ(name("hf.co/maker/demo"), "maker/demo");
  EXPECT_EQ(name("maker/one:Q4_K_M"), "maker/one");
  EXPECT_EQ(name("hf.co/maker/two:q8_0"), "maker/two/y-Q8_0");
  test::expect_error(Errc::NotFound, {"maker/two:Q2_K"}, [&] { name("maker/two:Q2_K"); });
}

TEST_F(ModelCatalogTest, AMissingDirectoryIsAnError) {
  test::expect_error(Errc::NotFound, {"nowhere", "no such directory"},
                     [&] { list_models(directory_.file("nowhere")); });
  EXPECT_TRUE(names().empty());
}

TEST_F(ModelCatalogTest, NamesAreForgiving) {
  const std::vector<CatalogEntry> models{{.name = "acme/Tiny", .path = "1"},
                                         {.name = "other/tiny-2", .path = "2"},
                                         {.name = "twin/same", .path = "3"},
                                         {.name = "zoo/same", .path = "4"}};
  const std::vector<CatalogEntry> none;
  const auto path = [&](std::string_view name) { return find_model(models, name).path; };
  EXPECT_EQ(path("acme/Tiny"), "1");
  EXPECT_EQ(path("Tiny"), "1");
  EXPECT_EQ(path("tiny"), "1");
  EXPECT_EQ(path("ACME/tiny:latest"), "1");
  EXPECT_EQ(path("tiny-2:latest"), "2");
  EXPECT_EQ(path("zoo/same"), "4");
  test::expect_error(Errc::BadInput, {"same", "twin/same", "zoo/same"}, [&] { path("same"); });
  test::expect_error(Errc::NotFound,
                     {"'tinny'", "did you mean acme/Tiny?", "acme/Tiny, other/tiny-2"},
                     [&] { path("tinny"); });
  test::expect_error(Errc::NotFound, {"'gpt'"}, [&] { path("gpt"); });
  test::expect_error(Errc::NotFound, {"':latest'"}, [&] { path(":latest"); });
  test::expect_error(Errc::NotFound, {"there are none"}, [&] { find_model(none, "x"); });
}

TEST_F(ModelCatalogTest, ChangesAreSeen) {
  link("demo", "one");
  ModelCatalog catalog(directory_.path(), std::chrono::milliseconds(0));
  EXPECT_EQ(names(catalog.list()), std::vector<std::string>{"one"});
  write("two/config.json", R"({"model_type": "qwen3_5_moe"})");
  ASSERT_EQ(names(catalog.list()), (std::vector<std::string>{"one", "two"}));
  EXPECT_NE(catalog.list()[1].problem, "");
  EXPECT_EQ(catalog.list()[0].family, "qwen3_5_moe");
  fs::remove_all(directory_.file("two"));
  link("demo-mla", "two");
  EXPECT_EQ(catalog.list()[1].problem, "");
  EXPECT_EQ(catalog.list()[1].family, "deepseek_v3");

  ModelCatalog lazy(directory_.path(), std::chrono::hours(1));
  EXPECT_EQ(lazy.list().size(), 2u);
  fs::remove(directory_.file("one"));
  EXPECT_EQ(lazy.list().size(), 2u);
}

TEST(ModelPlanTest, IsTheEnginesOwn) {
  EngineOptions options;
  options.n_threads = 1;
  options.n_sessions = 2;
  options.n_checkpoints = 3;
  options.max_drafts = kAutoDrafts;
  options.context_length = 512;
  options.memory_bytes = 100u << 20;
  const std::string path = test::source_path("models/demo");
  const MemoryPlan plan = plan_model(path, options);
  const Engine engine(path, options);
  EXPECT_EQ(plan.used_bytes(), engine.plan().used_bytes());
  EXPECT_EQ(plan.floor_bytes(), engine.plan().floor_bytes());
  EXPECT_EQ(plan.n_slots, engine.plan().n_slots);
  EXPECT_LT(plan.n_slots, plan.max_slots);
  options.memory_bytes = 1 << 20;
  EXPECT_FALSE(plan_model(path, options).fits());
  EXPECT_EQ(plan_model(path, options).floor_bytes(), plan.floor_bytes());
}

// A context that nobody asked for gives way; one that was asked for does not.
TEST(ModelPlanTest, AsMuchContextAsFits) {
  const std::string path = test::source_path("models/demo");
  EngineOptions options;
  options.n_threads = 1;
  options.memory_bytes = std::uint64_t{1} << 30;
  EXPECT_EQ(fitting_context(path, options), kDefaultContext);
  options.memory_bytes = plan_model(path, options).floor_bytes() - 1;
  EXPECT_EQ(fitting_context(path, options), kDefaultContext * 7 / 8);
  options.context_length = 16000;
  EXPECT_EQ(fitting_context(path, options), 16000);
  options.context_length = 0;
  options.memory_bytes = 1 << 20;
  EXPECT_EQ(fitting_context(path, options), 0);
}

}  // namespace
}  // namespace moeflux
