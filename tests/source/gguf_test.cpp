#include "source/gguf.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/gguf_header.h"
#include "quant/codec.h"
#include "source/read_matrix.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/tiny_gguf.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::GgufWriter;
using test::TempDir;
using test::tiny_gguf;

class GgufSourceTest : public testing::Test {
 protected:
  std::string write(const GgufWriter& writer, const std::string& name = "model.gguf") {
    writer.write(directory_.file(name));
    return directory_.file(name);
  }
  std::shared_ptr<const ModelSource> open(const GgufWriter& writer) {
    return open_source(write(writer));
  }
  void refuse(const GgufWriter& writer, Errc code, std::initializer_list<std::string_view> parts) {
    const std::string path = write(writer);
    expect_error(code, {"model.gguf"}, [&] { open_source(path); });
    expect_error(code, parts, [&] { open_source(path); });
  }

  TempDir directory_;
};

TEST_F(GgufSourceTest, ConfigAndTensorsAreThoseOfTheFamily) {
  const auto source = open(tiny_gguf());
  EXPECT_EQ(source->layout(), ModelSource::Layout::Gguf);
  EXPECT_EQ(layout_name(source->layout()), "gguf");
  const Json& config = source->config();
  EXPECT_EQ(config["model_type"], "qwen3_moe");
  EXPECT_EQ(config["vocab_size"], 64);
  EXPECT_EQ(config["hidden_size"], 16);
  EXPECT_EQ(config["num_hidden_layers"], 2);
  EXPECT_EQ(config["num_attention_heads"], 4);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["head_dim"], 8);
  EXPECT_EQ(config["num_experts"], 4);
  EXPECT_EQ(config["num_experts_per_tok"], 2);
  EXPECT_EQ(config["moe_intermediate_size"], 8);
  EXPECT_EQ(config["norm_topk_prob"], true);
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["attention_bias"], false);
  EXPECT_EQ(config["rope_parameters"]["rope_theta"], 1e6);
  EXPECT_EQ(config["rms_norm_eps"], double{1e-6f});

  EXPECT_EQ(source->tensors().size(), 27u);
  const TensorInfo* experts = source->find("model.layers.1.mlp.experts.down_proj.weight");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->shape, (std::vector<std::int64_t>{4, 16, 8}));
  EXPECT_EQ(experts->dtype, DType::F32);
  EXPECT_TRUE(has_tensor(*source, "lm_head.weight"));
  const StoredExpertBank bank =
      find_stacked_matrices(*source, "model.layers.1.mlp.experts.down_proj", 4, 16, 8);
  EXPECT_EQ(bank.at(3).data.offset, experts->offset + 3 * 16 * 8 * 4);  // in place
}

TEST_F(GgufSourceTest, ATensorInBlocks) {
  GgufWriter writer;
  test::add_tiny_metadata(writer);
  test::for_each_tiny_tensor([&](const std::string& name, const auto& shape) {
    if (name != "output.weight") test::add_tiny_tensor(writer, name, shape);
  });
  // Rows of 16 are no whole blocks.
  GgufWriter odd = writer;
  refuse(odd.tensor("output.weight", {64, 16}, 2, std::string(576, '\0')), Errc::BadInput,
         {"output.weight", "blocks of 32"});
  // A type that nobody reads is no harm before somebody needs the tensor.
  const auto source = open(writer.tensor("output.weight", {64, 16}, 41, std::string(64, '\0')));
  expect_error(Errc::Unsupported, {"lm_head.weight", "GGUF 41"},
               [&] { find_matrix(*source, "lm_head", 64, 16); });
}

// Four experts of 2 x 64 numbers in NVFP4, whose scales are 1, 2, 3 and 4.
TEST_F(GgufSourceTest, Nvfp4WithAScaleForEachExpert) {
  std::string blocks;
  for (int i = 0; i < 4 * 2; ++i) {
    for (int s = 0; s < 4; ++s) blocks += static_cast<char>(0x30 + 3 * s + i);  // E4M3
    for (int c = 0; c < 32; ++c) blocks += static_cast<char>(37 * c + 11 * i);
  }
  const auto tiny = [&](bool has_scale, std::uint32_t type) {
    GgufWriter writer;
    test::add_tiny_metadata(writer);
    test::for_each_tiny_tensor([&](const std::string& name, const auto& shape) {
      if (name != "blk.0.ffn_up_exps.weight") test::add_tiny_tensor(writer, name, shape);
    });
    if (type == 40)
      writer.tensor("blk.0.ffn_up_exps.weight", {4, 2, 64}, 40, blocks);
    else
      test::add_tiny_tensor(writer, "blk.0.ffn_up_exps.weight", {4, 2, 64});
    const float scales[] = {1, 2, 3, 4};
    if (has_scale) {
      writer.floats("blk.0.ffn_up_exps.scale", {4}, scales)
          .floats("blk.0.ffn_up_exps.input_scale", {4}, scales);
    }
    return writer;
  };
  const std::string module = "model.layers.0.mlp.experts.up_proj";
  const auto plain = open_source(write(tiny(false, 40), "plain.gguf"));
  const auto scaled = open_source(write(tiny(true, 40), "scaled.gguf"));
  const StoredExpertBank a = find_stacked_matrices(*plain, module, 4, 2, 64);
  const StoredExpertBank b = find_stacked_matrices(*scaled, module, 4, 2, 64);
  EXPECT_EQ(describe(a.at(0)), "nvfp4");
  EXPECT_EQ(describe(b.at(0)), "nvfp4 (gguf)");
  for (int e = 0; e < 4; ++e) {
    const LoadedMatrix x(*plain, a.at(e)), y(*scaled, b.at(e));
    for (std::int64_t row = 0; row < 2; ++row) {
      float wanted[64], found[64];
      decode_row(x.view(), row, wanted);
      decode_row(y.view(), row, found);
      for (int c = 0; c < 64; ++c) EXPECT_EQ(found[c], wanted[c] * static_cast<float>(e + 1)) << c;
    }
  }
  refuse(tiny(true, 0), Errc::Unsupported, {"up_proj.scale", "not NVFP4"});
}

TEST_F(GgufSourceTest, ATiedHead) {
  GgufWriter writer;
  test::add_tiny_metadata(writer);
  test::for_each_tiny_tensor([&](const std::string& name, const auto& shape) {
    if (name != "output.weight") test::add_tiny_tensor(writer, name, shape);
  });
  EXPECT_EQ(open(writer)->config()["tie_word_embeddings"], true);
}

// A sparse file: nothing of it but the header and one number is written.
TEST_F(GgufSourceTest, ATensorBeyondFourGigabytes) {
  constexpr std::uint64_t kOffset = std::uint64_t{5} << 30;
  GgufWriter writer;
  test::add_tiny_metadata(writer);
  test::for_each_tiny_tensor([&](const std::string& name, const auto& shape) {
    if (name != "output.weight") test::add_tiny_tensor(writer, name, shape);
  });
  writer.tensor_at("output.weight", {64, 16}, 0, kOffset);
  const std::string path = write(writer);
  expect_error(Errc::BadInput, {"bytes are missing"}, [&] { open_source(path); });
  const std::uint64_t begin = GgufHeader(path).data_begin() + kOffset;
  fs::resize_file(path, begin + 64 * 16 * 4);
  const float marker = 42;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(begin + 4 * 17));
  file.write(reinterpret_cast<const char*>(&marker), sizeof marker);
  file.close();
  const auto source = open_source(path);
  const LoadedMatrix head(*source, find_matrix(*source, "lm_head", 64, 16));
  float row[16];
  decode_row(head.view(), 1, row);
  EXPECT_EQ(row[1], 42);
  EXPECT_EQ(row[0], 0);
}

TEST_F(GgufSourceTest, QueriesKeysAndValuesInOneTensor) {
  GgufWriter writer;
  test::add_tiny_metadata(writer);
  test::for_each_tiny_tensor([&](const std::string& name, const auto& shape) {
    if (name == "blk.0.attn_q.weight")
      test::add_tiny_tensor(writer, "blk.0.attn_qkv.weight", {64, 16});
    else if (name != "blk.0.attn_k.weight" && name != "blk.0.attn_v.weight")
      test::add_tiny_tensor(writer, name, shape);
  });
  const auto source = open(writer);
  const auto* q = source->find("model.layers.0.self_attn.q_proj.weight");
  const auto* k = source->find("model.layers.0.self_attn.k_proj.weight");
  const auto* v = source->find("model.layers.0.self_attn.v_proj.weight");
  ASSERT_TRUE(q != nullptr && k != nullptr && v != nullptr);
  EXPECT_EQ(q->shape, (std::vector<std::int64_t>{32, 16}));
  EXPECT_EQ(k->shape, (std::vector<std::int64_t>{16, 16}));
  EXPECT_EQ(k->offset, q->offset + 32 * 16 * 4);
  EXPECT_EQ(v->offset, k->offset + 16 * 16 * 4);
}

TEST_F(GgufSourceTest, WhatEndsAnAnswerAndHowToSample) {
  GgufWriter writer = tiny_gguf();
  writer.number<std::uint32_t>("tokenizer.ggml.eot_token_id", 7)
      .number<std::int32_t>("tokenizer.ggml.eom_token_id", 9)
      .number("general.sampling.temp", 0.6f)
      .number<std::int32_t>("general.sampling.top_k", 20);
  const auto source = open(writer);
  const Json& config = source->generation_config();
  EXPECT_EQ(config["eos_token_id"], (Json{62, 7, 9}));
  EXPECT_EQ(config["temperature"], 0.6);
  EXPECT_EQ(config["top_k"], 20);
  EXPECT_EQ(source->text().gguf, directory_.file("model.gguf"));
  EXPECT_EQ(source->text().chat_template, "{{ messages[0].content }}");
}

TEST_F(GgufSourceTest, TemplatesHaveVariants) {
  GgufWriter writer = tiny_gguf();
  writer.text("tokenizer.chat_template.tool_use", "T")
      .texts("tokenizer.chat_templates", {"tool_use"});
  const Json expected{{{"name", "default"}, {"template", "{{ messages[0].content }}"}},
                      {{"name", "tool_use"}, {"template", "T"}}};
  EXPECT_EQ(open(writer)->text().chat_template, expected);
}

// ---- what is refused
// -------------------------------------------------------------------------------------------------

TEST_F(GgufSourceTest, OtherArchitecturesAreNamed) {
  GgufWriter writer;
  refuse(writer.text("general.architecture", "rwkv7"), Errc::Unsupported,
         {"\"rwkv7\" is not supported", "qwen35moe", "deepseek2", "llama"});
  GgufWriter projector;
  projector.text("general.type", "mmproj").text("general.architecture", "clip");
  refuse(projector, Errc::Unsupported, {"no model", "\"mmproj\""});
  refuse(GgufWriter(), Errc::BadInput, {"\"general.architecture\" is missing"});
}

TEST_F(GgufSourceTest, KeysAndTensorsThatNobodyKnows) {
  refuse(tiny_gguf().number("qwen3moe.attention.scale", 0.5f), Errc::Unsupported,
         {"\"qwen3moe.attention.scale\" is not known"});
  refuse(tiny_gguf().number<std::uint32_t>("qwen3moe.expert_gating_func", 2), Errc::Unsupported,
         {"\"qwen3moe.expert_gating_func\": 2", "supported: 1"});
  refuse(tiny_gguf().text("qwen3moe.rope.scaling.type", "longrope"), Errc::BadInput,
         {"rope.scaling.factor"});
  refuse(tiny_gguf().boolean("qwen3moe.attention.causal", false), Errc::Unsupported,
         {"look ahead"});
  EXPECT_NO_THROW(open(tiny_gguf().text("qwen3moe.author", "somebody")));
  EXPECT_NO_THROW(open(tiny_gguf().text("general.anything", "else")));
  for (const char* name : {"blk.0.attn_sinks.weight", "blk.2.attn_q.weight", "blk.x.attn_q.weight",
                           "blk.0.attn_q", "output_norm.weight2", "mtp.weight"}) {
    GgufWriter writer = tiny_gguf();
    test::add_tiny_tensor(writer, name, {1});
    refuse(writer, Errc::Unsupported, {name, "not known for the architecture qwen3moe"});
  }
}

TEST_F(GgufSourceTest, SizesOfLayersMustAgree) {
  GgufWriter writer;
  writer.text("general.architecture", "qwen3moe")
      .number<std::uint32_t>("qwen3moe.block_count", 2)
      .number<std::uint32_t>("qwen3moe.embedding_length", 16)
      .numbers<std::uint32_t>("qwen3moe.attention.head_count", {4, 8});
  test::add_tiny_tensor(writer, "token_embd.weight", {64, 16});
  test::add_tiny_tensor(writer, "output_norm.weight", {16});
  refuse(writer, Errc::Unsupported, {"head_count", "differs between layers"});
}

TEST_F(GgufSourceTest, ATruncatedDownloadSaysHowManyBytesAreMissing) {
  const std::string all = tiny_gguf().bytes();
  const std::string path = directory_.write("model.gguf", all);
  EXPECT_NO_THROW(open_source(path));
  for (const std::size_t missing : {1u, 100u, 5000u}) {
    directory_.write("model.gguf", all.substr(0, all.size() - missing));
    expect_error(Errc::BadInput, {"truncated", std::to_string(missing) + " bytes are missing"},
                 [&] { open_source(path); });
  }
}

TEST_F(GgufSourceTest, TensorsThatOverlap) {
  GgufWriter writer = tiny_gguf();
  writer.tensor_at("blk.1.attn_q.bias", {4}, 0, 64);
  refuse(writer, Errc::BadInput, {"overlap", "blk.1.attn_q.bias"});
}

TEST_F(GgufSourceTest, ImpossibleShapes) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{-1},
                                                 {std::int64_t{1} << 50},
                                                 {std::int64_t{1} << 39, std::int64_t{1} << 39}}) {
    GgufWriter writer = tiny_gguf();
    writer.tensor_at("blk.1.attn_q.bias", shape, 0, 0);
    refuse(writer, Errc::BadInput, {"blk.1.attn_q.bias"});
  }
}

// ---- parts and directories
// -------------------------------------------------------------------------------------------------

// The tiny model in three parts, of which the first has no tensors.
class GgufPartsTest : public GgufSourceTest {
 protected:
  static constexpr int kParts = 3;

  static std::string part_name(int part, const std::string& stem = "tiny-Q8_0") {
    return stem + "-0000" + std::to_string(part + 1) + "-of-00003.gguf";
  }
  void write_parts(int said_tensors = 27) {
    std::vector<GgufWriter> parts(kParts);
    test::add_tiny_metadata(parts[0]);
    test::add_tiny_vocabulary(parts[0]);
    int n = 0;
    test::for_each_tiny_tensor([&](const std::string& name, const auto& shape) {
      test::add_tiny_tensor(parts[1 + static_cast<std::size_t>(n++ % 2)], name, shape);
    });
    for (int i = 0; i < kParts; ++i) {
      parts[static_cast<std::size_t>(i)]
          .number<std::uint16_t>("split.no", static_cast<std::uint16_t>(i))
          .number<std::uint16_t>("split.count", kParts)
          .number<std::int32_t>("split.tensors.count", said_tensors);
      write(parts[static_cast<std::size_t>(i)], part_name(i));
    }
  }
};

TEST_F(GgufPartsTest, AnyPartOrTheirDirectoryOpensAll) {
  write_parts();
  for (const std::string& path :
       {directory_.file(part_name(0)), directory_.file(part_name(2)), directory_.path()}) {
    const auto source = open_source(path);
    EXPECT_EQ(source->n_files(), 3);
    EXPECT_EQ(source->tensors().size(), 27u);
    EXPECT_EQ(source->text().gguf, directory_.file(part_name(0)));
    EXPECT_EQ(source->find("model.norm.weight")->file, 2);
  }
}

TEST_F(GgufPartsTest, MissingAndForeignParts) {
  write_parts();
  fs::rename(directory_.file(part_name(1)), directory_.file("kept"));
  expect_error(Errc::NotFound, {part_name(0), part_name(1) + " is missing"},
               [&] { open_source(directory_.file(part_name(0))); });
  fs::copy(directory_.file(part_name(2)), directory_.file(part_name(1)));
  expect_error(Errc::BadInput, {part_name(1), "\"split.no\" 2", "part 2 of 3"},
               [&] { open_source(directory_.path()); });
  fs::rename(directory_.file("kept"), directory_.file("lone.gguf"));
  expect_error(Errc::BadInput, {"lone.gguf", "part 2 of 3"},
               [&] { open_source(directory_.file("lone.gguf")); });
  fs::remove(directory_.file("lone.gguf"));
  write_parts(28);
  expect_error(Errc::BadInput, {"27 tensors", "says 28"}, [&] { open_source(directory_.path()); });
}

TEST_F(GgufSourceTest, TheOnlyModelOfADirectory) {
  write(tiny_gguf(), "tiny.gguf");
  write(GgufWriter(), "mmproj-F16.gguf");
  EXPECT_EQ(open_source(directory_.path())->config()["model_type"], "qwen3_moe");
  write(tiny_gguf(), "other.gguf");
  expect_error(Errc::BadInput, {"2 models", "other.gguf, tiny.gguf"},
               [&] { open_source(directory_.path()); });
}

TEST(GgufNames, OfModels) {
  EXPECT_EQ(gguf_model_name("Qwen3-30B-A3B-Q4_K_M.gguf"), "Qwen3-30B-A3B-Q4_K_M");
  EXPECT_EQ(gguf_model_name("R1-Q2_K-00001-of-00015.gguf"), "R1-Q2_K");
  EXPECT_EQ(gguf_model_name("a-of-3.gguf"), "a-of-3");
  EXPECT_EQ(gguf_models({"a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf", "c.bin",
                         "mmproj-b.gguf"}),
            (std::vector<std::string>{"a-00001-of-00002.gguf", "b.gguf"}));
}

}  // namespace
}  // namespace moeflux
