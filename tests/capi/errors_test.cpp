// Arguments that are wrong: a status and a message, never a crash, and nothing changed.
#include <cstring>
#include <filesystem>
#include <limits>

#include "capi/handles.h"

namespace moeflux::test {
namespace {

std::string message() {
  return mf_last_error_message();
}

TEST(CapiErrors, NullIsAnErrorEverywhere) {
  EXPECT_EQ(mf_model_open(nullptr), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(message(), "params is NULL");
  EXPECT_EQ(mf_context_new(nullptr, nullptr), nullptr);
  EXPECT_EQ(mf_init_model(nullptr, nullptr, nullptr, nullptr, 8, 0), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_sampler_new(nullptr, nullptr), nullptr);
  EXPECT_EQ(mf_context_model(nullptr), nullptr);
  EXPECT_EQ(mf_model_name(nullptr), nullptr);

  std::int32_t token = 1;
  std::size_t n = 0;
  EXPECT_EQ(mf_eval_prompt(nullptr, &token, 1, 0, 0, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_eval_token(nullptr, 1, 0, 0, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_set_progress(nullptr, nullptr, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_rm(nullptr, 0, 0, -1), 0);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_pos_max(nullptr, 0), -1);
  EXPECT_EQ(mf_memory_seq_length(nullptr, 0), 0u);
  EXPECT_EQ(mf_memory_seq_nearest(nullptr, 0, 0), -1);
  EXPECT_EQ(mf_memory_seq_tokens(nullptr, 0, &token, 1, &n), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_rebuild(nullptr, 0, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_cp(nullptr, 0, 1), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_keep(nullptr, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_free(nullptr, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_checkpoint_pos(nullptr, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_restore_to(nullptr, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_forget_pos(nullptr, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_set_max_checkpoints(nullptr, 1), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_checkpoint_count(nullptr), 0u);
  EXPECT_EQ(mf_tokenize(nullptr, "a", 1, 0, &token, 1, &n), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_detokenize(nullptr, &token, 1, 0, nullptr, 0, &n), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_apply_template(nullptr, nullptr, nullptr, 0, &n), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_tokenize_chat(nullptr, nullptr, nullptr, 0, &n), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_generate(nullptr, 0, &token, 1, nullptr, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_model_sampling_params(nullptr, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_sampler_reset(nullptr, &token, 1), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_sampler_sample(nullptr, nullptr), -1);
  EXPECT_EQ(mf_get_stats(nullptr, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_prefetch_stats(nullptr, nullptr, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_n_vocab(nullptr) + mf_n_ctx(nullptr), 0u);
  EXPECT_EQ(mf_eos(nullptr), -1);
  // These have nothing to report and do nothing.
  mf_model_close(nullptr);
  mf_context_free(nullptr);
  mf_free_model(nullptr);
  mf_sampler_free(nullptr);
  mf_memory_clear(nullptr);
  mf_cancel(nullptr);
  mf_cancel_clear(nullptr);
  mf_reset_stats(nullptr);
  mf_reset_prefetch_stats(nullptr);
  mf_model_params_init(nullptr, sizeof(mf_model_params));
}

class Errors : public testing::Test {
 protected:
  ModelHandle model_ = open_bundled("demo");
  ContextHandle ctx_ = new_context(model_);
};

TEST_F(Errors, NullInsideOfACall) {
  std::int32_t token = 1;
  EXPECT_EQ(mf_eval_prompt(ctx_.get(), nullptr, 1, 0, 0, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_tokens(ctx_.get(), 0, &token, 1, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_tokenize(model_.get(), nullptr, 1, 0, &token, 1, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_generate(ctx_.get(), 0, nullptr, 1, nullptr, nullptr), MF_ERROR_NULL_ARGUMENT);
  const mf_message half{"user", nullptr};
  mf_chat_params chat = mf_chat_params_default();
  chat.messages = &half;
  chat.n_messages = 1;
  std::size_t n = 0;
  EXPECT_EQ(mf_tokenize_chat(model_.get(), &chat, nullptr, 0, &n), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(message(), "content is NULL");
  mf_sampling_params sampling = mf_sampling_params_default();
  sampling.n_logit_bias = 1;
  EXPECT_EQ(mf_sampler_new(model_.get(), &sampling), nullptr);
  EXPECT_EQ(message(), "logit_bias is NULL");
}

TEST_F(Errors, ASuccessClearsTheLastError) {
  EXPECT_EQ(mf_eval_token(ctx_.get(), 1, 9, 0, nullptr), MF_ERROR_BAD_POSITION);
  EXPECT_EQ(message(),
            "position 9 is not the length of sequence 0, which is 0: tokens can only be appended");
  EXPECT_EQ(mf_eval_token(ctx_.get(), 1, 0, 0, nullptr), MF_OK);
  EXPECT_EQ(mf_last_error(), MF_OK);
  EXPECT_EQ(message(), "");
}

TEST_F(Errors, PositionsMustBeTheLength) {
  eval(ctx_, kFirstPrompt);
  for (const std::size_t pos : {std::size_t{0}, std::size_t{3}, std::size_t{5}, SIZE_MAX}) {
    EXPECT_EQ(mf_eval_token(ctx_.get(), 1, pos, 0, nullptr), MF_ERROR_BAD_POSITION);
    EXPECT_EQ(mf_eval_prompt(ctx_.get(), kFirstPrompt.data(), 4, pos, 0, nullptr),
              MF_ERROR_BAD_POSITION);
  }
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 4u);
}

TEST_F(Errors, TokensMustBeInTheVocabulary) {
  const auto n_vocab = static_cast<std::int32_t>(mf_n_vocab(ctx_.get()));
  EXPECT_EQ(n_vocab, 2240);
  for (const std::int32_t bad : {-1, n_vocab, std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_EQ(mf_eval_token(ctx_.get(), bad, 0, 0, nullptr), MF_ERROR_BAD_INPUT);
    const Tokens tokens{1, 2, bad};
    EXPECT_EQ(mf_eval_prompt(ctx_.get(), tokens.data(), 3, 0, 0, nullptr), MF_ERROR_BAD_INPUT);
    EXPECT_EQ(mf_generate(ctx_.get(), 0, tokens.data(), 3, nullptr, nullptr), MF_ERROR_BAD_INPUT);
    std::size_t n = 0;
    EXPECT_EQ(mf_detokenize(model_.get(), tokens.data(), 3, 0, nullptr, 0, &n), MF_ERROR_BAD_INPUT);
  }
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 0u);
}

TEST_F(Errors, SequenceNumbersAreNotNegative) {
  EXPECT_EQ(mf_eval_token(ctx_.get(), 1, 0, -1, nullptr), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), -2), 0u);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_memory_seq_rm(ctx_.get(), -2, 0, -1), 0);
  EXPECT_EQ(mf_seq_checkpoint(ctx_.get(), -1, 0), MF_ERROR_BAD_INPUT);
}

TEST_F(Errors, AFullContextIsALimit) {
  const Tokens tokens(193, 5);
  EXPECT_EQ(mf_n_ctx(ctx_.get()), 192u);
  EXPECT_EQ(mf_eval_prompt(ctx_.get(), tokens.data(), 193, 0, 0, nullptr), MF_ERROR_LIMIT);
  EXPECT_EQ(mf_generate(ctx_.get(), 0, tokens.data(), 193, nullptr, nullptr), MF_ERROR_LIMIT);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 0u);
  // None of that has begun a sequence: this is the only one that this context may have.
  EXPECT_EQ(mf_eval_prompt(ctx_.get(), tokens.data(), 192, 0, 1, nullptr), MF_OK);
  EXPECT_EQ(mf_eval_token(ctx_.get(), 5, 192, 1, nullptr), MF_ERROR_LIMIT);
}

TEST_F(Errors, ContextsShareWhatTheModelWasOpenedFor) {
  mf_context_params params = mf_context_params_default();
  params.max_sequences = 4;  // of four, one is taken
  EXPECT_EQ(mf_context_new(model_.get(), &params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_OUT_OF_MEMORY);
  params.max_sequences = 0;
  EXPECT_EQ(mf_context_new(model_.get(), &params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BAD_INPUT);
  params.max_sequences = 3;
  ContextHandle rest(mf_context_new(model_.get(), &params));
  EXPECT_NE(rest, nullptr);
  EXPECT_EQ(mf_context_new(model_.get(), nullptr), nullptr);
  rest.reset();
  rest.reset(mf_context_new(model_.get(), &params));
  EXPECT_NE(rest, nullptr);
}

TEST_F(Errors, StructSizesAreVersions) {
  mf_context_params params = mf_context_params_default();
  params.struct_size = 0;
  EXPECT_EQ(mf_context_new(model_.get(), &params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BAD_INPUT);
  EXPECT_NE(message().find("mf_context_params_default()"), std::string::npos) << message();
  params.struct_size = sizeof(params) - 1;
  EXPECT_EQ(mf_context_new(model_.get(), &params), nullptr);
  params.struct_size = SIZE_MAX;
  EXPECT_EQ(mf_context_new(model_.get(), &params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BAD_INPUT);

  // A caller of the future: what it added must be 0 for us.
  struct Newer {
    mf_context_params known;
    std::int64_t added;
  } newer{};
  mf_context_params_init(&newer.known, sizeof(newer));
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
  EXPECT_EQ(newer.known.max_sequences, 1);
  EXPECT_EQ(newer.added, 0);
  EXPECT_NE(ContextHandle(mf_context_new(model_.get(), &newer.known)), nullptr);
  newer.added = 1;
  EXPECT_EQ(mf_context_new(model_.get(), &newer.known), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_UNSUPPORTED);

  mf_stats stats{};
  EXPECT_EQ(mf_get_stats(ctx_.get(), &stats), MF_ERROR_BAD_INPUT);
  const std::int32_t token = 1;
  mf_generate_result result{};
  EXPECT_EQ(mf_generate(ctx_.get(), 0, &token, 1, nullptr, &result), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 0u);
}

TEST_F(Errors, ValuesOutsideOfTheirRangeAreNamed) {
  mf_model_params params = mf_model_params_default();
  const std::string path = source_path("models/demo");
  params.path = path.c_str();
  const auto refused = [&](const char* name) {
    EXPECT_EQ(mf_model_open(&params), nullptr);
    EXPECT_EQ(mf_last_error(), MF_ERROR_BAD_INPUT);
    EXPECT_NE(message().find(name), std::string::npos) << message();
  };
  params.precision = 3, refused("precision"), params.precision = 0;
  params.kv_type = -1, refused("kv_type"), params.kv_type = 0;
  params.max_sequences = 0, refused("max_sequences"), params.max_sequences = 1;
  params.max_checkpoints = -1, refused("max_checkpoints"), params.max_checkpoints = 0;
  params.n_threads = -1, refused("n_threads"), params.n_threads = 1;
  params.context_length = -1, refused("context_length"), params.context_length = 0;
  params.lookahead = -2, refused("lookahead"), params.lookahead = -1;
  params.weights_path = "x", refused("either path"), params.weights_path = nullptr;
  params.memory_bytes = 1000;
  EXPECT_EQ(mf_model_open(&params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_OUT_OF_MEMORY);

  mf_sampling_params sampling = mf_sampling_params_default();
  sampling.temperature = -1;
  EXPECT_EQ(mf_sampler_new(model_.get(), &sampling), nullptr);
  EXPECT_NE(message().find("temperature"), std::string::npos);
}

TEST(CapiErrors, StatusesHaveNames) {
  EXPECT_STREQ(mf_status_name(MF_OK), "ok");
  EXPECT_STREQ(mf_status_name(MF_ERROR_NEEDS_REBUILD), "needs rebuild");
  EXPECT_STREQ(mf_status_name(static_cast<mf_status>(31)), "unknown status");
  EXPECT_STREQ(mf_version(),
               (std::to_string(MOEFLUX_VERSION_MAJOR) + "." +
                std::to_string(MOEFLUX_VERSION_MINOR) + "." + std::to_string(MOEFLUX_VERSION_PATCH))
                   .c_str());
}

// A read that fails in the middle of a pass leaves a sequence of which nothing is known.
TEST(CapiErrors, AFailedPassBreaksTheSequenceUntilItGoesBack) {
  const TempDir directory;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("models/demo")))
    std::filesystem::copy(entry.path(), directory.path());
  mf_model_params params = mf_model_params_default();
  params.path = directory.path().c_str();
  params.n_threads = 1;
  params.context_length = 64;
  params.lookahead = 0;
  // Memory for some of the experts: the others are read as they are asked for.
  ModelHandle model;
  for (params.memory_bytes = 8u << 20; model == nullptr; params.memory_bytes += 1u << 20) {
    model.reset(mf_model_open(&params));
    if (model == nullptr) {
      ASSERT_EQ(mf_last_error(), MF_ERROR_OUT_OF_MEMORY);
    }
  }
  const ContextHandle ctx = new_context(model);
  const Logits expected = eval(ctx, kFirstPrompt);
  ASSERT_EQ(mf_checkpoint_pos(ctx.get(), 4), MF_OK);

  const std::string file = directory.file("model-00001-of-00002.safetensors");
  const std::string kept = directory.file("kept");
  std::filesystem::copy_file(file, kept);
  std::filesystem::resize_file(file, 1000);
  int status = MF_OK;
  for (std::int32_t token = 5; status == MF_OK && token < 60; ++token)
    status = mf_eval_token(ctx.get(), token * 31, mf_memory_seq_length(ctx.get(), 0), 0, nullptr);
  ASSERT_EQ(status, MF_ERROR_IO) << message();
  EXPECT_NE(message().find("model-00001-of-00002"), std::string::npos) << message();

  const std::size_t length = mf_memory_seq_length(ctx.get(), 0);
  EXPECT_EQ(mf_eval_token(ctx.get(), 1, length, 0, nullptr), MF_ERROR_BROKEN_SEQUENCE);
  EXPECT_EQ(mf_checkpoint_pos(ctx.get(), length), MF_ERROR_BROKEN_SEQUENCE);
  EXPECT_EQ(mf_state_size(ctx.get()), 0u);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BROKEN_SEQUENCE);

  // Written into the same file, which the engine has open.
  std::filesystem::resize_file(file, 0);
  {
    std::FILE* out = std::fopen(file.c_str(), "r+b");
    std::FILE* in = std::fopen(kept.c_str(), "rb");
    std::vector<char> bytes(std::filesystem::file_size(kept));
    ASSERT_EQ(std::fread(bytes.data(), 1, bytes.size(), in), bytes.size());
    ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), out), bytes.size());
    std::fclose(in);
    std::fclose(out);
  }
  ASSERT_EQ(mf_restore_to(ctx.get(), 4), MF_OK) << message();
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
  mf_memory_clear(ctx.get());
  EXPECT_EQ(eval(ctx, kFirstPrompt), expected);
}

}  // namespace
}  // namespace moeflux::test
