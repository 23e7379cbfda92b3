#include "source/model_identity.h"

#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "support/edited_source.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::EditedSource;
using test::SafetensorsWriter;
using test::TempDir;
using test::write_file;

class ModelIdentity : public testing::Test {
 protected:
  // A checkpoint of three kinds of tensors: 2 norms, 2 x 40 experts, and an embedding of 20 blocks.
  static SafetensorsWriter weights() {
    SafetensorsWriter writer;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      writer.add_counting(prefix + "norm.weight", DType::F32, {16});
      for (int e = 0; e < 40; ++e) {
        writer.add_counting(prefix + "mlp.experts." + std::to_string(e) + ".up_proj.weight",
                            DType::F32, {4, 8});
      }
    }
    return writer.add_counting("model.embed_tokens.weight", DType::F32, {40, 512});
  }

  std::string identity(const SafetensorsWriter& writer, const std::string& directory = "m") {
    fs::create_directories(dir_.file(directory));
    dir_.write(directory + "/config.json", R"({"model_type": "x"})");
    writer.write(dir_.file(directory + "/model.safetensors"));
    return model_identity(*open_source(dir_.file(directory)));
  }

  TempDir dir_;
};

TEST_F(ModelIdentity, IsHexadecimalAndIndependentOfThePlace) {
  const std::string name = identity(weights());
  EXPECT_EQ(name.size(), 32u);
  EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(identity(weights()), name);
  EXPECT_EQ(identity(weights(), "elsewhere"), name);
}

// So small a checkpoint is read whole: one changed bit of any tensor shows.
TEST_F(ModelIdentity, ChangesWithEveryTensor) {
  std::set<std::string> names = {identity(weights())};
  const std::size_t n_bytes = weights().data().size();
  std::size_t n = 1;
  for (std::size_t at = 0; at < n_bytes; at += 1021, ++n) {
    SafetensorsWriter changed = weights();
    changed.data()[at] = static_cast<char>(changed.data()[at] ^ 1);
    names.insert(identity(changed));
  }
  EXPECT_EQ(names.size(), n);
}

TEST_F(ModelIdentity, ChangesWithNamesTypesAndShapes) {
  const auto one = [](const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
    SafetensorsWriter writer;
    return writer.add_counting(name, dtype, std::move(shape));
  };
  const std::set<std::string> names = {
      identity(one("a", DType::F32, {4, 4})), identity(one("b", DType::F32, {4, 4})),
      identity(one("a", DType::I32, {4, 4})), identity(one("a", DType::F32, {2, 8})),
      identity(one("a", DType::F32, {16}))};
  EXPECT_EQ(names.size(), 5u);
}

TEST_F(ModelIdentity, ChangesWithTheConfig) {
  EditedSource edited(test::source_path("models/demo"));
  const std::string name = model_identity(*open_source(test::source_path("models/demo")));
  EXPECT_EQ(model_identity(*edited.build()), name);
  edited.text()["rope_theta"] = 12345;
  EXPECT_NE(model_identity(*edited.build()), name);
}

TEST_F(ModelIdentity, OfAContainerFollowsItsFingerprintAndConfig) {
  const std::string path = test::source_path("tests/fixtures/container-v1");
  const auto source = open_source(path);
  const std::string name = model_identity(*source);
  ModelSource other("x", ModelSource::Layout::Container);
  other.set_conventions(source->conventions());
  other.set_fingerprint(source->fingerprint());
  other.set_config(source->config(), "config.json");
  EXPECT_EQ(model_identity(other), name);  // no file is looked at
  other.set_fingerprint("0123456789abcdef");
  EXPECT_NE(model_identity(other), name);
  other.set_fingerprint(source->fingerprint());
  other.set_config(Json::object(), "config.json");
  EXPECT_NE(model_identity(other), name);
}

TEST_F(ModelIdentity, EveryFixtureHasItsOwn) {
  std::set<std::string> names;
  std::size_t n = 0;
  for (const auto& entry : fs::directory_iterator(test::source_path("tests/fixtures"))) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    names.insert(model_identity(*open_source(entry.path().string())));
    ++n;
  }
  EXPECT_GT(n, 5u);
  EXPECT_EQ(names.size(), n);
}

}  // namespace
}  // namespace moeflux
