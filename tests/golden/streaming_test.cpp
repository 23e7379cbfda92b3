// How experts get into memory never changes a logit: every source, reader, policy, cache size,
// order of completion, prefetch and resize gives the same bits as a model that is wholly resident.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/file.h"
#include "convert/convert.h"
#include "experts/eviction.h"
#include "io/make_reader.h"
#include "support/fake_reader.h"
#include "support/flash_moe_writer.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;
using test::LoadedModel;
using test::LoadOptions;

constexpr std::int64_t kPrompt = 24, kDecode = 16;

// The prompt in one pass, then token by token, as an answer is made.
std::vector<float> logits(const std::string& path, const LoadOptions& options) {
  LoadedModel model(path, options);
  const std::vector<std::int32_t> tokens =
      test::Random(5).tokens(kPrompt + kDecode, model.config().n_vocab);
  Session session = model.new_session();
  std::vector<float> all = model.feed(session, std::span(tokens).first(kPrompt));
  const std::vector<float> rest = model.feed(session, std::span(tokens).subspan(kPrompt), 1);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

std::uint64_t n_experts(const std::string& path) {
  const auto source = open_source(path);
  return ExpertStore(source, describe_model(*source).index.experts).n_experts_total();
}

// At the least a model may have (a token's experts of one layer), at a quarter and at a half.
std::vector<std::uint64_t> cache_sizes(const std::string& path) {
  const auto source = open_source(path);
  int top_k = 0;
  for (const LayerSpec& layer : describe_model(*source).config.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) top_k = std::max(top_k, moe->top_k);
  }
  const std::uint64_t all = n_experts(path);
  return {static_cast<std::uint64_t>(top_k), all / 4, all / 2};
}

class Streaming : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<test::TempDir>();
    for (const char* model : {"demo", "demo-mla"}) {
      convert(test::source_path(std::string("models/") + model),
              directory_->file(std::string(model) + "-container"), {});
    }
    test::write_flash_moe(*open_source(test::source_path("models/demo")),
                          directory_->file("demo-flash-moe"));
  }
  static void TearDownTestSuite() { directory_.reset(); }

  std::string path() const {
    const std::string made = directory_->file(GetParam());
    return directory_exists(made) ? made : test::source_path("models/" + GetParam());
  }

  static std::unique_ptr<test::TempDir> directory_;
};
std::unique_ptr<test::TempDir> Streaming::directory_;

TEST_P(Streaming, EveryReaderAndCacheSizeGivesTheSameBits) {
  const std::vector<float> want = logits(path(), {});
  for (const std::uint64_t slots : cache_sizes(path())) {
    for (const ReaderKind kind : {ReaderKind::Uring, ReaderKind::Pool}) {
      LoadOptions options{.cache_slots = slots, .lookahead = kind == ReaderKind::Pool ? 2 : 0};
      options.make_reader = [&](const std::vector<std::string>& paths) {
        try {
          return make_reader(paths, {.kind = kind});
        } catch (const Error&) {
          return make_reader(paths, {});  // the kernel has no io_uring
        }
      };
      expect_same_bits(want, logits(path(), options), fmt::format("{} slots", slots));
    }
  }
}

TEST_P(Streaming, LateSplitAndShuffledReadsGiveTheSameBits) {
  const std::vector<float> want = logits(path(), {});
  std::uint64_t seed = 0;
  for (const std::uint64_t slots : cache_sizes(path())) {
    for (const PolicyInfo& policy : policy_list()) {
      LoadOptions options{.cache_slots = slots,
                          .lookahead = static_cast<int>(++seed % 4),
                          .cache_policy = std::string(policy.name)};
      options.make_reader = [&](const std::vector<std::string>& paths) {
        return std::make_unique<test::FakeReader>(paths, test::FakeReaderOptions{.seed = seed});
      };
      expect_same_bits(want, logits(path(), options),
                       fmt::format("{} slots, {}", slots, policy.name));
    }
  }
}

TEST_P(Streaming, ResizingTheCacheInBetweenGivesTheSameBits) {
  const std::vector<float> want = logits(path(), {});
  const std::vector<std::uint64_t> sizes = cache_sizes(path());
  LoadOptions options{.cache_slots = n_experts(path()), .lookahead = 2};
  options.before_pass = [&](ExpertStreamer& experts, int pass) {
    const std::uint64_t size =
        pass % 4 == 3 ? n_experts(path()) : sizes[static_cast<std::size_t>(pass % 4)];
    experts.set_capacity(size * experts.store().slot_bytes());
    EXPECT_LE(experts.cache().n_held(), experts.cache().capacity());
  };
  expect_same_bits(want, logits(path(), options), "resized before every pass");
}

TEST_P(Streaming, EveryThreadCountGivesTheSameBits) {
  const std::vector<float> want = logits(path(), {});
  for (const int n_threads : {2, 3}) {
    LoadOptions options{
        .n_threads = n_threads, .cache_slots = cache_sizes(path())[1], .lookahead = 4};
    expect_same_bits(want, logits(path(), options), fmt::format("{} threads", n_threads));
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, Streaming,
                         testing::Values("demo", "demo-mla", "demo-container", "demo-mla-container",
                                         "demo-flash-moe"),
                         [](const auto& source) {
                           std::string name = source.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moeflux
