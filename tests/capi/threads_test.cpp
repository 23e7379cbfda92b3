// What several threads may do with one model.
#include <atomic>
#include <thread>

#include "capi/handles.h"

namespace moeflux::test {
namespace {

TEST(CapiThreads, EachHasItsOwnLastError) {
  EXPECT_EQ(mf_model_open(nullptr), nullptr);
  std::thread([] {
    EXPECT_EQ(mf_last_error(), MF_OK);
    EXPECT_STREQ(mf_last_error_message(), "");
    EXPECT_EQ(mf_eval_token(nullptr, 1, 0, 0, nullptr), MF_ERROR_NULL_ARGUMENT);
    EXPECT_STREQ(mf_last_error_message(), "ctx is NULL");
  }).join();
  EXPECT_STREQ(mf_last_error_message(), "params is NULL");
}

TEST(CapiThreads, ContextsOfOneModelTakeTurns) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle straight = new_context(model);
  const auto first = greedy(straight, kFirstPrompt, 8);
  mf_memory_clear(straight.get());
  const auto second = greedy(straight, kSecondPrompt, 8);

  const ContextHandle a = new_context(model), b = new_context(model);
  std::vector<Logits> from_a, from_b;
  std::thread thread_a([&] { from_a = greedy(a, kFirstPrompt, 8); });
  std::thread thread_b([&] { from_b = greedy(b, kSecondPrompt, 8); });
  thread_a.join();
  thread_b.join();
  EXPECT_EQ(from_a, first);
  EXPECT_EQ(from_b, second);
}

TEST(CapiThreads, AModelMayBeClosedBeforeItsContexts) {
  ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  const SamplerHandle sampler(mf_sampler_new(model.get(), nullptr));
  model.reset();
  const Logits logits = eval(ctx, kFirstPrompt);
  EXPECT_GE(mf_sampler_sample(sampler.get(), logits.data()), 0);
  EXPECT_STREQ(mf_model_name(ctx.get()), "demo");
  EXPECT_EQ(mf_model_n_vocab(mf_context_model(ctx.get())), 2240u);
}

struct Progress {
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  std::uint64_t cancel_at = ~std::uint64_t{0};

  static int call(std::uint64_t done, std::uint64_t total, void* user) {
    Progress& self = *static_cast<Progress*>(user);
    self.done.push_back(done);
    self.total = total;
    return done >= self.cancel_at ? 1 : 0;
  }
};

TEST(CapiThreads, ProgressIsToldAndCanCancel) {
  const ModelHandle model = open_bundled("demo", 2, /*max_batch=*/8);
  const ContextHandle ctx = new_context(model), straight = new_context(model);
  const Tokens prompt(20, 5);
  Progress progress;
  ASSERT_EQ(mf_set_progress(ctx.get(), Progress::call, &progress), MF_OK);
  eval(ctx, prompt);
  EXPECT_EQ(progress.done, (std::vector<std::uint64_t>{0, 8, 16, 20}));
  EXPECT_EQ(progress.total, 20u);

  mf_memory_clear(ctx.get());
  progress = {};
  progress.cancel_at = 8;
  EXPECT_EQ(mf_eval_prompt(ctx.get(), prompt.data(), 20, 0, 0, nullptr), MF_ERROR_CANCELLED);
  EXPECT_EQ(progress.done, (std::vector<std::uint64_t>{0, 8}));
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 8u);  // whole passes, and it can go on
  ASSERT_EQ(mf_set_progress(ctx.get(), nullptr, nullptr), MF_OK);
  EXPECT_EQ(eval(ctx, Tokens(12, 5)), eval(straight, prompt));
}

TEST(CapiThreads, AnotherThreadCancels) {
  const ModelHandle model = open_bundled("demo", 2, /*max_batch=*/1);
  const ContextHandle ctx = new_context(model), other = new_context(model);
  // The prompt waits inside of its third pass until the other thread has cancelled.
  struct Meeting {
    std::atomic<bool> begun = false, cancelled = false;
  } meeting;
  const auto wait = [](std::uint64_t done, std::uint64_t, void* user) {
    Meeting& m = *static_cast<Meeting*>(user);
    if (done == 3) {
      m.begun = true;
      while (!m.cancelled) std::this_thread::yield();
    }
    return 0;
  };
  ASSERT_EQ(mf_set_progress(ctx.get(), wait, &meeting), MF_OK);
  std::thread canceller([&] {
    while (!meeting.begun) std::this_thread::yield();
    mf_cancel(ctx.get());
    meeting.cancelled = true;
  });
  const Tokens prompt(50, 5);
  EXPECT_EQ(mf_eval_prompt(ctx.get(), prompt.data(), 50, 0, 0, nullptr), MF_ERROR_CANCELLED);
  canceller.join();
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 3u);             // that pass was broken off
  eval(other, {1});                                              // only that context was meant
  EXPECT_EQ(mf_eval_token(ctx.get(), 5, 3, 0, nullptr), MF_OK);  // and only that call
}

TEST(CapiThreads, CancellingWhenNothingRunsEndsTheNextCall) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  mf_cancel(ctx.get());
  EXPECT_EQ(mf_eval_token(ctx.get(), 5, 0, 0, nullptr), MF_ERROR_CANCELLED);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 0u);
  mf_cancel(ctx.get());
  mf_cancel_clear(ctx.get());
  EXPECT_EQ(mf_eval_token(ctx.get(), 5, 0, 0, nullptr), MF_OK);

  mf_cancel(ctx.get());
  mf_generate_result result{};
  result.struct_size = sizeof(result);
  const std::int32_t token = 6;
  EXPECT_EQ(mf_generate(ctx.get(), 0, &token, 1, nullptr, &result), MF_OK);
  EXPECT_EQ(result.stop_reason, MF_STOP_CANCELLED);
  EXPECT_EQ(result.n_tokens, 0u);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 1u);
}

TEST(CapiThreads, LoadingCanBeCancelled) {
  const std::string path = source_path("models/demo");
  mf_model_params params = mf_model_params_default();
  params.path = path.c_str();
  params.progress = [](std::uint64_t, std::uint64_t, void*) { return 1; };
  EXPECT_EQ(mf_model_open(&params), nullptr);
  EXPECT_EQ(mf_last_error(), MF_ERROR_CANCELLED);
}

}  // namespace
}  // namespace moeflux::test
