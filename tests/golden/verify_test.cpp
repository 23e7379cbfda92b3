// That verification fails when it should: wrong values, wrong files.
#include "engine/verify.h"

#include <cstring>
#include <limits>
#include <map>

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
    const bool passed =
        verify_model(engine, golden_.write(dir_), options, [&](const VerifyCheck& check) {
          if (!check.passed) names.push_back(check.name);
        });
    EXPECT_EQ(passed, names.empty());
    return names;
  }

  test::TempDir dir_;
  SpoiledGolden golden_{kFixture};
};

using Names = std::vector<std::string>;

TEST_F(Verify, AnUnchangedCopyPasses) {
  EXPECT_EQ(failed(), Names{});
}

TEST_F(Verify, OneWrongLogit) {
  golden_.set<float>("logits", 1000, golden_.get<float>("logits", 1000) + 0.5f);
  EXPECT_EQ(failed(), Names{"logits"});
}

TEST_F(Verify, OneWrongHiddenValue) {
  const auto& shape = golden_.tensors().at("hidden").shape;
  const auto per_layer = static_cast<std::size_t>(shape[1] * shape[2]);
  golden_.set<float>("hidden", 2 * per_layer + 5, 3.0f);
  EXPECT_EQ(failed(), Names{"layer 1"});
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

TEST_F(Verify, NothingToCompareIsNotSuccess) {
  auto& tensors = golden_.tensors();
  std::erase_if(tensors, [](const auto& tensor) { return tensor.first != "ids"; });
  expect_error(Errc::BadInput, {"ids", "nothing to compare"}, [&] { failed(); });
}

TEST_F(Verify, AHeadThatIsMissing) {
  Engine engine(
      test::fixture_path("qwen-onekv"),
      {.n_threads = 1, .memory_bytes = std::uint64_t{1} << 30, .precision = Precision::Exact});
  const SpoiledGolden plain("qwen-onekv");
  SpoiledGolden with_mtp = plain;
  const std::int64_t n = plain.length_of("ids") - 1;
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
