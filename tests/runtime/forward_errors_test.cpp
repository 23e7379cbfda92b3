#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "runtime/forward.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::expect_same_bits;
using test::fixture_path;
using test::LoadedModel;

TEST(ForwardErrors, AWrongTokenIsRefusedBeforeAnythingHappens) {
  LoadedModel model(fixture_path("qwen-onekv"));
  Session session = model.new_session(), other = model.new_session();
  const std::int32_t good[] = {1, 2, 3};
  std::vector<float> logits(256);
  for (const std::int32_t bad : {-1, 256, INT32_MAX, INT32_MIN}) {
    const std::int32_t tokens[] = {5, bad};
    const Span spans[] = {{.session = &other, .tokens = good, .logits = logits.data()},
                          {.session = &session, .tokens = tokens, .logits = logits.data()}};
    expect_error(Errc::BadInput, {std::to_string(bad), "256"}, [&] { model.forward().run(spans); });
  }
  Session fresh = model.new_session();
  const std::vector<float> want = model.feed(fresh, good);
  expect_same_bits(want, model.feed(session, good));
  expect_same_bits(want, model.feed(other, good));
}

TEST(ForwardErrors, MtpRefusesAWrongToken) {
  LoadedModel model(fixture_path("qwen-ratio3"));
  Session session = model.new_session();
  std::vector<float> hidden(72), logits(272);
  const std::int32_t bad[] = {272};
  const MtpSpan span{
      .session = &session, .hidden = hidden.data(), .tokens = bad, .logits = logits.data()};
  expect_error(Errc::BadInput, {"272"}, [&] { model.forward().run_mtp(span); });
  EXPECT_EQ(session.mtp_length(), 0);
}

TEST(ForwardErrors, TheContextIsALimitNotAMemoryError) {
  LoadedModel model(fixture_path("qwen-onekv"), {.max_length = 10});
  const auto tokens = test::Random(1).tokens(11, 256);
  Session session = model.new_session(), fresh = model.new_session();
  expect_error(Errc::LimitExceeded, {"11 tokens", "10"}, [&] { model.feed(session, tokens); });
  const auto ten = std::span(tokens).first(10);
  expect_same_bits(model.feed(session, ten), model.feed(fresh, ten, 3));
  expect_error(Errc::LimitExceeded, {"10 are used"},
               [&] { model.feed(session, std::span(tokens).first(1)); });
}

// One session without room must not cost the others of its batch their state.
TEST(ForwardErrors, AFullSessionDoesNotPoisonItsNeighbours) {
  LoadedModel model(fixture_path("qwen-onekv"), {.max_length = 8});
  const auto tokens = test::Random(2).tokens(8, 256);
  Session full = model.new_session(), other = model.new_session(), fresh = model.new_session();
  model.feed(full, tokens);
  model.feed(other, std::span(tokens).first(4));
  std::vector<float> logits(2 * 256);
  const Span spans[] = {
      {.session = &other, .tokens = std::span(tokens).subspan(4, 1), .logits = logits.data()},
      {.session = &full, .tokens = std::span(tokens).subspan(4, 1), .logits = logits.data() + 256}};
  expect_error(Errc::LimitExceeded, {"8 are used"}, [&] { model.forward().run(spans); });
  const std::vector<float> want = model.feed(fresh, tokens);
  expect_same_bits(model.feed(other, std::span(tokens).subspan(4)),
                   std::span(want).subspan(4 * 256));
}

TEST(ForwardErrors, AFailedReadPoisonsTheSessionAndResetHeals) {
  const test::TempDir dir;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(fixture_path("qwen-onekv") + "/" + name, dir.file(name));
  }
  const std::string file = dir.file("model.safetensors");
  const std::string content = read_text_file(file);
  LoadedModel model(dir.path(), {.cache_slots = 1});
  const auto tokens = test::Random(6).tokens(9, 256);
  Session session = model.new_session(), untouched = model.new_session();
  model.feed(session, tokens);

  std::filesystem::resize_file(file, 4096);
  expect_error(Errc::Io, {file}, [&] { model.feed(session, tokens); });
  EXPECT_EQ(session.length(), 9);
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  expect_error(Errc::BadInput, {"reset"},
               [&] { model.feed(session, tokens); });  // the state is half-way
  session.reset();
  expect_same_bits(model.feed(session, tokens), model.feed(untouched, tokens));
}

TEST(ForwardErrors, EmptyBatchesDoNothing) {
  LoadedModel model(fixture_path("qwen-onekv"));
  Session session = model.new_session();
  EXPECT_NO_THROW(model.forward().run({}));
  const Span span{.session = &session, .tokens = {}, .logits = nullptr};
  EXPECT_NO_THROW(model.forward().run({&span, 1}));
  EXPECT_EQ(session.length(), 0);
}

TEST(ForwardErrors, MoreThanTheWorkspaceIsOurOwnBug) {
  LoadedModel model(fixture_path("qwen-onekv"), {.max_tokens = 4});
  Session session = model.new_session();
  EXPECT_THROW(model.feed(session, test::Random(1).tokens(5, 256)), std::logic_error);
  EXPECT_NO_THROW(model.feed(session, test::Random(1).tokens(4, 256)));
}

}  // namespace
}  // namespace moeflux
