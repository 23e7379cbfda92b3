#include "convert/model_files.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "source/checkpoint_files.h"
#include "source/quant_settings.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

class ModelFilesTest : public testing::Test {
 protected:
  ModelFilesTest() {
    test::SafetensorsWriter()
        .add_counting("w", DType::F32, {1})
        .write(dir_.file("model.safetensors"));
  }
  std::shared_ptr<const ModelSource> open(const Json& config) {
    dir_.write("config.json", dump_json(config));
    return open_source(dir_.path());
  }
  std::string content(const std::vector<TextFile>& files, const std::string& name) {
    const auto it = std::find_if(files.begin(), files.end(),
                                 [&](const TextFile& file) { return file.name == name; });
    return it == files.end() ? "(none)" : it->content;
  }

  test::TempDir dir_;
};

TEST_F(ModelFilesTest, TheTextPartOfAConfig) {
  const Json config{{"model_type", "qwen3_5_moe"},
                    {"text_config",
                     {{"model_type", "qwen3_5_moe_text"}, {"hidden_size", 8}, {"eos_token_id", 1}}},
                    {"vision_config", {{"hidden_size", 9}}},
                    {"eos_token_id", 2},
                    {"tie_word_embeddings", true},
                    {"quantization", {{"bits", 4}, {"group_size", 64}}}};
  const Json flat = container_config(*open(config), false);
  EXPECT_EQ(flat, Json({{"model_type", "qwen3_5_moe"},
                        {"hidden_size", 8},
                        {"eos_token_id", 1},
                        {"tie_word_embeddings", true}}));
}

TEST_F(ModelFilesTest, OnlyTheFp8BlockIsKept) {
  const Json config{{"model_type", "x"},
                    {"quantization_config",
                     {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {64, 64}}}}};
  const auto source = open(config);
  EXPECT_FALSE(container_config(*source, false).contains("quantization_config"));
  EXPECT_EQ(fp8_block_edge(container_config(*source, true)), 64);
}

TEST_F(ModelFilesTest, TokenizerAndTemplateComeAlong) {
  dir_.write("tokenizer.json", "{\"t\": 1}");
  dir_.write("special_tokens_map.json", "{}");
  dir_.write("tokenizer_config.json", "{\"chat_template\": \"{{ x }}\"}");
  dir_.write("generation_config.json", "{\"top_k\": 5}");
  const auto files = container_text_files(*open({{"model_type", "x"}}), false);
  EXPECT_EQ(content(files, "tokenizer.json"), "{\"t\": 1}");
  EXPECT_EQ(content(files, "special_tokens_map.json"), "{}");
  EXPECT_EQ(content(files, "chat_template.jinja"), "{{ x }}");
  EXPECT_EQ(parse_json(content(files, "generation_config.json"), "g"), Json({{"top_k", 5}}));
  EXPECT_EQ(content(files, "vocab.bin"), "(none)");
}

TEST_F(ModelFilesTest, NamedTemplates) {
  dir_.write("chat_template.json", R"({"chat_template": [{"name": "default", "template": "a"}]})");
  const auto files = container_text_files(*open({{"model_type", "x"}}), false);
  EXPECT_EQ(content(files, "chat_template.jinja"), "(none)");
  EXPECT_EQ(parse_json(content(files, "chat_template.json"), "t")["chat_template"][0]["template"],
            "a");
}

}  // namespace
}  // namespace moeflux
