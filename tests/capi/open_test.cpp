// The ways to name a model, the original's among them.
#include "capi/handles.h"
#include "source/model_source.h"
#include "support/flash_moe_writer.h"

namespace moeflux::test {
namespace {

TEST(CapiOpen, NonexistentPathsAreNotFound) {
  mf_model_params params = mf_model_params_default();
  params.path = "/nonexistent/model";
  EXPECT_EQ(mf_model_open(&params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NOT_FOUND);
  EXPECT_STREQ(mf_last_error_message(), "/nonexistent/model: no such file or directory");
  EXPECT_EQ(
      mf_init_model("/nonexistent/w", "/nonexistent/m", "/nonexistent/v", "/nonexistent", 8, 0),
      nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NOT_FOUND);
  EXPECT_STREQ(mf_last_error_message(), "/nonexistent/m: no such file");
}

TEST(CapiOpen, WhatAModelSaysOfItself) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  EXPECT_STREQ(mf_model_name(ctx.get()), "demo");
  EXPECT_EQ(mf_n_vocab(ctx.get()), 2240u);
  EXPECT_EQ(mf_n_ctx(ctx.get()), 192u);
  EXPECT_GE(mf_eos(ctx.get()), 0);
  EXPECT_EQ(mf_eos(ctx.get()), mf_model_eos(model.get()));
}

class FivePaths : public testing::Test {
 protected:
  void write(FlashMoeOptions::Tree tree, int bits = 4) {
    FlashMoeOptions options;
    options.tree = tree;
    options.expert_bits = bits;
    write_flash_moe(*open_source(source_path("models/demo")), directory_.path(), options);
    const bool three = tree == FlashMoeOptions::Tree::ParentOfThree;
    artifacts_ = directory_.path() + (three ? "/artifacts" : "");
    root_ = directory_.path() + (three ? "/root" : "");
  }
  ContextHandle open(int experts_per_tok = 8, int use_2bit = 0) const {
    return ContextHandle(mf_init_model((artifacts_ + "/model_weights.bin").c_str(),
                                       (artifacts_ + "/model_weights.json").c_str(), nullptr,
                                       root_.c_str(), experts_per_tok, use_2bit));
  }

  TempDir directory_;
  std::string artifacts_, root_;
};

TEST_F(FivePaths, AreTheSameModel) {
  write(FlashMoeOptions::Tree::ParentOfThree);
  const ContextHandle ctx = open();
  ASSERT_NE(ctx, nullptr) << mf_last_error_message();
  const ModelHandle whole = open_bundled("demo");
  const ContextHandle expected = new_context(whole);
  EXPECT_EQ(greedy(ctx, kFirstPrompt, 4), greedy(expected, kFirstPrompt, 4));
  EXPECT_EQ(mf_eos(ctx.get()), mf_eos(expected.get()));
  mf_free_model(const_cast<ContextHandle&>(ctx).release());
}

TEST_F(FivePaths, ExpertsPerTokenAreClamped) {
  write(FlashMoeOptions::Tree::OneDirectory);
  const Logits all = eval(open(8), kFirstPrompt);
  EXPECT_EQ(eval(open(100), kFirstPrompt), all);
  const Logits one = eval(open(1), kFirstPrompt);
  EXPECT_NE(one, all);
  EXPECT_EQ(eval(open(0), kFirstPrompt), one);
}

TEST_F(FivePaths, TwoBitExpertsAreAskedFor) {
  write(FlashMoeOptions::Tree::OneDirectory, 2);
  EXPECT_EQ(open(8, 0), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NOT_FOUND);
  EXPECT_NE(std::string(mf_last_error_message()).find("packed_experts"), std::string::npos);
  const ContextHandle ctx = open(8, 1);
  ASSERT_NE(ctx, nullptr) << mf_last_error_message();
  eval(ctx, kFirstPrompt);
}

TEST_F(FivePaths, AVocabularyThatIsNamedMustExist) {
  write(FlashMoeOptions::Tree::OneDirectory);
  const std::string vocab = directory_.file("none.bin");
  EXPECT_EQ(mf_init_model((artifacts_ + "/model_weights.bin").c_str(),
                          (artifacts_ + "/model_weights.json").c_str(), vocab.c_str(),
                          root_.c_str(), 8, 0),
            nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NOT_FOUND);
  EXPECT_EQ(mf_last_error_message(), vocab + ": no such file");
}

}  // namespace
}  // namespace moeflux::test
