// Snapshots through the C API; their bytes are the subject of tests/runtime.
#include <cstring>
#include <fstream>

#include "capi/handles.h"

namespace moeflux::test {
namespace {

std::vector<unsigned char> save(const ContextHandle& ctx, int version, int seq_id = 0) {
  std::vector<unsigned char> bytes(mf_seq_state_size(ctx.get(), seq_id, version));
  EXPECT_GT(bytes.size(), 0u) << mf_last_error_message();
  EXPECT_EQ(mf_seq_state_save(ctx.get(), seq_id, version, bytes.data(), bytes.size()),
            static_cast<std::int64_t>(bytes.size()));
  return bytes;
}

TEST(CapiState, EveryVersionContinuesBitForBit) {
  for (const char* name : {"demo", "demo-mla"}) {
    const ModelHandle model = open_bundled(name);
    const ContextHandle ctx = new_context(model), other = new_context(model);
    eval(ctx, kFirstPrompt);
    std::vector<std::vector<unsigned char>> states;
    for (const int version : {1, 2, 3}) {
      if (version == 1 && name == std::string("demo-mla")) continue;
      states.push_back(save(ctx, version));
    }
    const auto expected = greedy(ctx, {9}, 4);
    for (const auto& state : states) {
      eval(other, {5});  // something to be replaced
      ASSERT_EQ(mf_state_load(other.get(), state.data(), state.size()), 0)
          << mf_last_error_message();
      EXPECT_EQ(mf_memory_seq_length(other.get(), 0), 4u);
      EXPECT_EQ(greedy(other, {9}, 4), expected);
      mf_memory_clear(other.get());
    }
  }
}

TEST(CapiState, OnlyOurVersionKnowsTheTokens) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  eval(ctx, kFirstPrompt);
  const auto ours = save(ctx, 3), original = save(ctx, 2);
  Tokens tokens(4);
  std::size_t n = 0;
  ASSERT_EQ(mf_state_load(ctx.get(), ours.data(), ours.size()), 0);
  ASSERT_EQ(mf_memory_seq_tokens(ctx.get(), 0, tokens.data(), 4, &n), MF_OK);
  EXPECT_EQ(tokens, kFirstPrompt);
  ASSERT_EQ(mf_state_load(ctx.get(), original.data(), original.size()), 0);
  ASSERT_EQ(mf_memory_seq_tokens(ctx.get(), 0, tokens.data(), 4, &n), MF_OK);
  EXPECT_EQ(tokens, Tokens(4, -1));
  eval(ctx, {9});
  EXPECT_EQ(mf_memory_seq_rebuild(ctx.get(), 0, 4), MF_ERROR_UNSUPPORTED);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 5u);
}

TEST(CapiState, WhatIsRefusedChangesNothing) {
  const ModelHandle model = open_bundled("demo"), mla = open_bundled("demo-mla");
  const ContextHandle ctx = new_context(model), other = new_context(mla);
  eval(ctx, kFirstPrompt);
  eval(other, kFirstPrompt);
  const auto good = save(ctx, 3);
  const auto load = [&](std::vector<unsigned char> bytes, auto change) {
    change(bytes);
    return mf_seq_state_load(ctx.get(), 0, bytes.data(), bytes.size());
  };
  EXPECT_EQ(load(good, [](auto& b) { b[0] ^= 1; }), MF_ERROR_BAD_SNAPSHOT);
  EXPECT_EQ(load(good, [](auto& b) { b[b.size() / 2] ^= 1; }), MF_ERROR_BAD_SNAPSHOT);
  EXPECT_EQ(load(good, [](auto& b) { b.pop_back(); }), MF_ERROR_BAD_SNAPSHOT);
  EXPECT_EQ(load(good, [](auto& b) { b.resize(3); }), MF_ERROR_BAD_SNAPSHOT);
  EXPECT_EQ(load(save(other, 3), [](auto&) {}), MF_ERROR_OTHER_MODEL);
  EXPECT_EQ(load(save(other, 2), [](auto&) {}), MF_ERROR_OTHER_MODEL);
  EXPECT_EQ(mf_state_load(ctx.get(), good.data(), 8), -1);
  EXPECT_EQ(mf_seq_state_load(ctx.get(), 0, nullptr, 8), MF_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
  const ContextHandle straight = new_context(model);
  eval(straight, kFirstPrompt);
  EXPECT_EQ(eval(ctx, {9}), eval(straight, {9}));
}

TEST(CapiState, AFailedLoadLeavesNoSequenceBehind) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  EXPECT_EQ(mf_seq_state_load(ctx.get(), 5, "nothing", 7), MF_ERROR_BAD_SNAPSHOT);
  eval(ctx, {1}, 6);  // the only one this context may have
}

TEST(CapiState, ABufferThatIsTooSmallIsLeftAlone) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  eval(ctx, kFirstPrompt);
  std::vector<unsigned char> bytes(mf_state_size(ctx.get()) - 1, 0xAB);
  EXPECT_EQ(mf_state_save(ctx.get(), bytes.data(), bytes.size()), -1);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(bytes, std::vector<unsigned char>(bytes.size(), 0xAB));
  EXPECT_EQ(mf_seq_state_size(ctx.get(), 0, 4), 0u);
  EXPECT_EQ(mf_last_error(), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_state_size(nullptr), 0u);
  EXPECT_EQ(mf_state_save(nullptr, bytes.data(), bytes.size()), -1);
  EXPECT_EQ(mf_state_load(nullptr, bytes.data(), bytes.size()), -1);
}

TEST(CapiState, FilesHoldTheSameBytes) {
  const TempDir directory;
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model), other = new_context(model);
  eval(ctx, kFirstPrompt);
  const std::string path = directory.file("state");
  ASSERT_EQ(mf_seq_state_save_file(ctx.get(), 0, 3, path.c_str()), MF_OK)
      << mf_last_error_message();
  std::ifstream file(path, std::ios::binary);
  const std::vector<unsigned char> bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes, save(ctx, 3));
  ASSERT_EQ(mf_seq_state_load_file(other.get(), 0, path.c_str()), MF_OK);
  EXPECT_EQ(greedy(ctx, {9}, 4), greedy(other, {9}, 4));
  EXPECT_EQ(mf_seq_state_load_file(other.get(), 0, directory.file("none").c_str()),
            MF_ERROR_NOT_FOUND);
  EXPECT_EQ(mf_seq_state_save_file(ctx.get(), 0, 3, directory.file("no/such").c_str()),
            MF_ERROR_IO);
  EXPECT_EQ(mf_seq_state_save_file(ctx.get(), 0, 3, nullptr), MF_ERROR_NULL_ARGUMENT);
}

}  // namespace
}  // namespace moeflux::test
