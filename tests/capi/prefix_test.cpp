// Not reading again what was read before: in memory, and on disk for other processes.
#include "capi/handles.h"

namespace moeflux::test {
namespace {

ModelHandle open_with_store(const std::string& name, const std::string& directory) {
  const std::string path = source_path("models/" + name);
  mf_model_params params = mf_model_params_default();
  params.path = path.c_str();
  params.n_threads = 1;
  params.context_length = 192;
  params.prefix_store = directory.c_str();
  ModelHandle model(mf_model_open(&params));
  EXPECT_NE(model, nullptr) << mf_last_error_message();
  return model;
}

Tokens numbers(std::int32_t first, int n) {
  Tokens tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(first + i * 7);
  return tokens;
}

std::size_t sync(const ContextHandle& ctx, const Tokens& tokens) {
  std::size_t n_kept = 99;
  EXPECT_EQ(mf_memory_seq_sync(ctx.get(), 0, tokens.data(), tokens.size(), &n_kept), MF_OK)
      << mf_last_error_message();
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), n_kept);
  return n_kept;
}

TEST(CapiPrefix, MemoryIsUsedFirst) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  const Tokens tokens = numbers(10, 20);
  EXPECT_EQ(sync(ctx, tokens), 0u);
  eval(ctx, tokens);
  ASSERT_EQ(mf_memory_seq_remember(ctx.get(), 0), MF_OK);
  EXPECT_EQ(mf_checkpoint_count(ctx.get()), 1u);
  Tokens longer = tokens;
  longer.push_back(5);
  eval(ctx, {6});                     // another way to go on
  EXPECT_EQ(sync(ctx, longer), 20u);  // from the checkpoint
  longer[3] = 1;
  EXPECT_EQ(sync(ctx, longer), 0u);  // no state there
}

TEST(CapiPrefix, TheStoreIsSharedByProcesses) {
  for (const char* name : {"demo", "demo-mla"}) {
    const TempDir directory;
    const Tokens tokens = numbers(10, 80), more = numbers(5, 3);
    Logits expected;
    {
      const ModelHandle model = open_with_store(name, directory.path());
      const ContextHandle ctx = new_context(model);
      eval(ctx, tokens);
      ASSERT_EQ(mf_memory_seq_remember(ctx.get(), 0), MF_OK) << mf_last_error_message();
      expected = eval(ctx, more);
    }
    const ModelHandle model = open_with_store(name, directory.path());
    const ContextHandle ctx = new_context(model);
    Tokens all = tokens;
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(sync(ctx, all), tokens.size());
    EXPECT_EQ(eval(ctx, more), expected);
  }
}

TEST(CapiPrefix, WrongCallsChangeNothing) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  eval(ctx, kFirstPrompt);
  std::size_t n_kept = 0;
  const std::int32_t bad = -1;
  EXPECT_EQ(mf_memory_seq_sync(ctx.get(), 0, nullptr, 0, &n_kept), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_memory_seq_sync(ctx.get(), 0, &bad, 1, &n_kept), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_memory_seq_sync(ctx.get(), 0, nullptr, 1, &n_kept), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_sync(ctx.get(), 0, &bad, 1, nullptr), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_sync(nullptr, 0, &bad, 1, &n_kept), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_remember(nullptr, 0), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_remember(ctx.get(), 3), MF_ERROR_NOT_FOUND);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
}

}  // namespace
}  // namespace moeflux::test
