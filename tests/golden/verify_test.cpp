// That verification fails when it should: wrong values, wrong files.
#include "engine/verify/verify.h"

#include <cstring>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "source/safetensors.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::expect_error;

// The golden file of a fixture, changed.
class SpoiledGolden {
 public:
  explicit SpoiledGolden(const std::string& fixture) {
    const auto file = open_tensor_file(test::fixture_path(fixture) + "/golden.safetensors");
    for (const auto& [name, info] : file->tensors()) {
      std::string bytes(info.bytes, '\0');
      file->read(info.extent(), std::as_writable_bytes(std::span(bytes)));
      tensors_[name] = {info.dtype, info.shape, bytes};
    }
  }

  struct Tensor {
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  std::int64_t length_of(const std::string& name) const { return tensors_.at(name).shape[0]; }

  template <class T>
  T get(const std::string& name, std::size_t index) const {
    T value;
    std::memcpy(&value, tensors_.at(name).bytes.data() + index * sizeof value, sizeof value);
    return value;
  }
  template <class T>
  void set(const std::string& name, std::size_t index, T value) {
    std::memcpy(tensors_.at(name).bytes.data() + index * sizeof value, &value, sizeof value);
  }

  std::string write(const test::TempDir& dir) const {
    test::SafetensorsWriter writer;
    for (const auto& [name, t] : tensors_) writer.add(name, t.dtype, t.shape, t.bytes);
    writer.write(dir.file("golden.safetensors"));
    return dir.file("golden.safetensors");
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

// What a row of a golden tensor is compared as.
struct GoldenTensor {
  const char* name;
  const char* check;
};
constexpr GoldenTensor kTensors[] = {{"logits", "logits"},
                                     {"mtp_logits", "mtp"},
                                     {"greedy_logits", "greedy"},
                                     {"final", "final"},
                                     {"route.1.weights", "routes 1"}};

class Verify : public testing::Test {
 protected:
  static constexpr const char* kFixture = "qwen-ratio3";

  // The names of the checks that failed.
  std::vector<std::string> failed(const VerifyOptions& options = {}, std::int64_t max_batch = 512) {
    Engine engine(test::fixture_path(kFixture), {.n_threads = 1,
                                                 .context_length = 256,
                                                 .memory_bytes = std::uint64_t{1} << 30,
                                                 .max_batch = max_batch});
    std::vector<std::string> names;
    not_compared_.clear();
    const bool passed =
        verify_model(engine, golden_.write(dir_), options, [&](const VerifyCheck& check) {
          if (!check.passed) names.push_back(check.name);
          if (check.name == "not compared") not_compared_ = check.note;
        });
    EXPECT_EQ(passed, names.empty());
    return names;
  }

  std::size_t width_of(const std::string& name) {
    return static_cast<std::size_t>(golden_.tensors().at(name).shape.back());
  }
  // Of row `row`, all dimensions but the last taken as one.
  void scale_row(const std::string& name, std::size_t row, float factor) {
    for (std::size_t i = row * width_of(name); i < (row + 1) * width_of(name); ++i)
      golden_.set<float>(name, i, golden_.get<float>(name, i) * factor);
  }
  void move_value(const std::string& name, std::size_t index, float by) {
    golden_.set<float>(name, index, golden_.get<float>(name, index) + by);
  }

  std::string not_compared_;  // by the last failed()
  test::TempDir dir_;
  SpoiledGolden golden_{kFixture};
};

using Names = std::vector<std::string>;

TEST_F(Verify, AnUnchangedCopyPasses) {
  EXPECT_EQ(failed(), Names{});
}

TEST_F(Verify, OneRowOffByAHalfPerMille) {
  const SpoiledGolden good = golden_;
  for (const auto& [name, check] : kTensors) {
    golden_ = good;
    scale_row(name, 11, 1.0005f);
    EXPECT_EQ(failed(), Names{check});
  }
}

TEST_F(Verify, OneValueOffByAHundredth) {
  const SpoiledGolden good = golden_;
  for (const auto& [name, check] : kTensors) {
    golden_ = good;
    move_value(name, 5 * width_of(name) + 1, 0.01f);
    EXPECT_EQ(failed(), Names{check});
  }
}

TEST_F(Verify, TheWrongLayerIsNamed) {
  const SpoiledGolden good = golden_;
  const std::int64_t n_tokens = good.length_of("ids");
  const Names layers{"embedding", "layer 0", "layer 1", "layer 2", "final norm"};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto last_row = (i + 1) * static_cast<std::size_t>(n_tokens) - 1;
    golden_ = good;
    scale_row("hidden", last_row, 1.0005f);
    EXPECT_EQ(failed(), Names{layers[i]});
    golden_ = good;
    move_value("hidden", last_row * width_of("hidden"), 0.01f);
    EXPECT_EQ(failed(), Names{layers[i]});
  }
}

TEST_F(Verify, NanIsNotClose) {
  golden_.set<float>("mtp_logits", 7, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(failed(), Names{"mtp"});
}

TEST_F(Verify, AnotherRoute) {
  const auto id = golden_.get<std::int32_t>("route.2.ids", 4);
  golden_.set<std::int32_t>("route.2.ids", 4, id == 0 ? 1 : id - 1);
  EXPECT_EQ(failed(), Names{"routes 2"});
}

TEST_F(Verify, ARouteTwice) {
  golden_.set<std::int32_t>("route.2.ids", 5, golden_.get<std::int32_t>("route.2.ids", 4));
  golden_.set<float>("route.2.weights", 5, golden_.get<float>("route.2.weights", 4));
  EXPECT_EQ(failed(), Names{"routes 2"});
}

TEST_F(Verify, AnotherContinuation) {
  golden_.set<float>("greedy_logits", 5, 1e4f);
  EXPECT_EQ(failed(), Names{"greedy"});
}

TEST_F(Verify, TheToleranceIsUsed) {
  EXPECT_GT(failed({.tolerance = 1e-12}).size(), 5u);
}

TEST_F(Verify, PiecesLargerThanABatchAreCut) {
  EXPECT_EQ(failed({.chunk = 100}, 5), Names{});
}

TEST_F(Verify, ShapesOfAnotherModel) {
  golden_.tensors().at("logits").shape = {golden_.tensors().at("logits").shape[1],
                                          golden_.tensors().at("logits").shape[0]};
  expect_error(Errc::BadInput, {"logits", "golden.safetensors"}, [&] { failed(); });
}

TEST_F(Verify, TokensOfAnotherVocabulary) {
  golden_.set<std::int32_t>("ids", 3, 100000);
  expect_error(Errc::BadInput, {"100000"}, [&] { failed(); });
}

TEST_F(Verify, WrongTypes) {
  golden_.tensors().at("logits").dtype = DType::I32;
  expect_error(Errc::BadInput, {"logits", "I32", "F32"}, [&] { failed(); });
}

TEST_F(Verify, NotAGoldenFile) {
  golden_.tensors().erase("ids");
  expect_error(Errc::BadInput, {"ids"}, [&] { failed(); });
}

TEST_F(Verify, APromptWithoutTokens) {
  golden_.tensors()["ids"] = {DType::I32, {0}, ""};
  expect_error(Errc::BadInput, {"ids", "no tokens"}, [&] { failed(); });
}

TEST_F(Verify, WhatIsMissingIsNamed) {
  const SpoiledGolden good = golden_;
  for (const char* name : {"hidden", "logits", "route.0.ids", "route.3.weights", "mtp_logits",
                           "greedy", "greedy_logits"}) {
    golden_ = good;
    golden_.tensors().erase(name);
    expect_error(Errc::NotFound, {fmt::format("\"{}\" is missing", name), "golden.safetensors"},
                 [&] { failed(); });
  }
}

TEST_F(Verify, HiddenStatesOfSomeLayersOnly) {
  auto& hidden = golden_.tensors().at("hidden");
  hidden.bytes.resize(hidden.bytes.size() / 5 * 4);
  hidden.shape[0] = 4;
  expect_error(Errc::BadInput, {"hidden", "[4, 20, 72]", "[5, 20, 72]"}, [&] { failed(); });
}

TEST_F(Verify, TensorsOfNoCheck) {
  golden_.tensors()["route.4.ids"] = golden_.tensors()["route.3.ids"];
  golden_.tensors()["logit"] = golden_.tensors()["logits"];
  EXPECT_EQ(failed(), Names{});
  EXPECT_EQ(not_compared_, "logit route.4.ids");
}

// Several prompts may leave out the same kinds of tensors, not different ones.
TEST_F(Verify, SeveralPrompts) {
  const SpoiledGolden one = golden_;
  auto& tensors = golden_.tensors();
  tensors.clear();
  for (const char* prefix : {"p0.", "p1."}) {
    for (const char* name : {"ids", "hidden", "logits"})
      tensors[std::string(prefix) + name] = one.tensors().at(name);
  }
  EXPECT_EQ(failed(), Names{});
  tensors["p1.mtp_logits"] = one.tensors().at("mtp_logits");
  expect_error(Errc::NotFound, {"p0.mtp_logits"}, [&] { failed(); });
  tensors.erase("p1.mtp_logits");
  tensors["p0.route.1.ids"] = one.tensors().at("route.1.ids");
  expect_error(Errc::NotFound, {"p0.route.0.ids"}, [&] { failed(); });
  tensors.erase("p0.route.1.ids");
  tensors.erase("p1.logits");
  expect_error(Errc::NotFound, {"p1.logits"}, [&] { failed(); });
}

TEST_F(Verify, AHeadThatIsMissing) {
  Engine engine(
      test::fixture_path("qwen-onekv"),
      {.n_threads = 1, .memory_bytes = std::uint64_t{1} << 30, .precision = Precision::Exact});
  SpoiledGolden with_mtp("qwen-onekv");
  const std::int64_t n = with_mtp.length_of("ids") - 1;
  with_mtp.tensors()["mtp_logits"] = {
      DType::F32, {n, 256}, std::string(static_cast<std::size_t>(n * 256 * 4), '\0')};
  std::vector<std::string> names;
  EXPECT_FALSE(verify_model(engine, with_mtp.write(dir_), {}, [&](const VerifyCheck& check) {
    if (!check.passed) names.push_back(check.name);
  }));
  EXPECT_EQ(names, Names{"mtp"});
}

}  // namespace
}  // namespace moeflux
