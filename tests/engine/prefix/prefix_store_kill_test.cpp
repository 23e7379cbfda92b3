// Writers that are killed, and several that write and give up files at the same time: what is found
// afterwards is whole, and what was there before is still there.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/file_calls.h"
#include "engine/prefix/prefix_store_directory.h"
#include "engine/prefix/session_sync.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

EngineOptions small_options() {
  EngineOptions options;
  options.n_threads = 1;  // children must not miss threads of their parent
  options.context_length = 128;
  options.max_batch = 64;
  options.n_sessions = 3;
  options.memory_bytes = std::uint64_t{1} << 30;
  options.elastic = false;
  return options;
}

class PrefixStoreKillTest : public testing::Test {
 protected:
  PrefixStoreOptions store_options() const {
    return {.directory = directory_.path(),
            .worth = {.min_tokens = 1, .min_new = 1, .seconds_per_byte = 0},
            .block = 16,
            .leftover_seconds = 0,
            .free_bytes = [](const auto&) { return std::uint64_t{1} << 40; }};
  }
  PrefixStore new_store() const { return PrefixStore(store_options(), identity_); }

  std::vector<TokenId> tokens(std::uint64_t seed, std::int64_t n) {
    return test::Random(seed).tokens(n, engine_.config().n_vocab);
  }
  // The same beginning, and then something else.
  std::vector<TokenId> branch(std::span<const TokenId> from, std::uint64_t seed, std::int64_t n) {
    std::vector<TokenId> all(from.begin(), from.begin() + 32);
    const std::vector<TokenId> rest = tokens(seed, n - 32);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  std::int64_t stored_length(std::span<const TokenId> tokens) {
    PrefixStore store = new_store();
    Session session = engine_.new_session();
    return SessionSync(engine_, &store).sync(session, tokens).n_tokens;
  }

  const test::FileCallGuard quick_;  // what a process wrote outlives it without a sync
  test::TempDir directory_;
  Engine engine_{test::source_path("models/demo"), small_options()};
  const std::string identity_ = prefix_identity(engine_);
};

TEST_F(PrefixStoreKillTest, AtAnyPoint) {
  const std::vector<TokenId> old = tokens(1, 60);
  std::vector<float> old_logits;
  {
    PrefixStore store = new_store();
    Session session = engine_.new_session();
    const std::vector<std::int64_t> points = {40, 59};
    old_logits = SessionSync(engine_, &store).prefill(session, old, points);
  }
  Session session = engine_.new_session();
  std::vector<TokenId> next = branch(old, 2, 100);
  engine_.prefill(session, next);
  const auto remember = [&] {
    PrefixStore store = new_store();
    return SessionSync(engine_, &store).remember(session);
  };
  ASSERT_TRUE(remember());
  double whole = 1;  // seconds that an undisturbed writer takes

  constexpr int kKills = 200;
  test::Random random(9);
  std::vector<std::string> old_files;
  for (const PrefixFile& file : scan_prefix_store(directory_.path()).files)
    old_files.push_back(file.path(directory_.path()));
  int n_killed = 0, n_complete = 0, n_tries = 0;
  for (; n_killed < kKills && n_tries < 5 * kKills; ++n_tries) {
    // Another token in the middle: a state and blocks that the store does not have.
    next[50] = static_cast<TokenId>(n_tries + 1);
    session.reset();
    session.adopt(next);  // what the layers hold does not matter here
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(remember() ? 0 : 1);
    const bool undisturbed = n_tries < 3;
    const auto start = Clock::now();
    if (!undisturbed) {
      std::this_thread::sleep_for(std::chrono::duration<double>(whole * random.uniform()));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (undisturbed)
      whole = std::min(whole, std::chrono::duration<double>(Clock::now() - start).count());
    n_killed += WIFSIGNALED(status) ? 1 : 0;

    const PrefixStoreCheck check = verify_prefix_store(directory_.path());
    ASSERT_TRUE(check.damaged.empty()) << check.damaged[0];
    ASSERT_EQ(stored_length(old), 59);
    std::vector<TokenId> longer = next;
    longer.push_back(1);
    const std::int64_t n = stored_length(longer);
    ASSERT_TRUE(n == 0 || n == 100) << n;  // all of it or nothing
    n_complete += n == 100 ? 1 : 0;
    // What killed writers leave stays; whole files would only take time to check.
    for (const PrefixFile& file : scan_prefix_store(directory_.path()).files) {
      const std::string path = file.path(directory_.path());
      if (std::find(old_files.begin(), old_files.end(), path) == old_files.end())
        std::filesystem::remove(path);
    }
  }
  EXPECT_EQ(n_killed, kKills) << "of " << n_tries << ", " << whole << " s each";
  EXPECT_LT(n_complete, n_tries);
  RecordProperty("tries", n_tries);
  RecordProperty("complete", n_complete);

  PrefixStore store = new_store();
  Session again = engine_.new_session();
  SessionSync sync(engine_, &store);
  ASSERT_EQ(sync.sync(again, old).n_tokens, 59);
  test::expect_same_bits(engine_.prefill(again, std::span(old).subspan(59)), old_logits);
  EXPECT_TRUE(remember());  // what killed writers left is in nobody's way, and goes
  next[50] = 77;
  session.adopt(next);
  EXPECT_TRUE(remember());
  EXPECT_EQ(summarize_prefix_store(directory_.path()).n_leftovers, 0u);
}

// In a store so small that each of them gives up what the others have written.
TEST_F(PrefixStoreKillTest, SeveralProcessesWriteReadAndEvict) {
  const std::vector<TokenId> common = tokens(1, 32);
  constexpr int kProcesses = 4, kRounds = 25;
  Session sessions[2] = {engine_.new_session(), engine_.new_session()};
  std::vector<TokenId> prompts[2];
  std::vector<float> logits[2];
  for (std::size_t i = 0; i < 2; ++i) {
    prompts[i] = branch(common, 10 + i, 80);
    engine_.prefill(sessions[i], std::span(prompts[i]).first(79));
  }
  std::uint64_t one = 0;
  {
    PrefixStore store = new_store();
    ASSERT_TRUE(SessionSync(engine_, &store).remember(sessions[0]));
    one = summarize_prefix_store(directory_.path()).bytes;
  }
  PrefixStoreOptions options = store_options();
  options.max_bytes = one + one / 2;  // one and a half

  std::vector<pid_t> children;
  for (int child = 0; child < kProcesses; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      PrefixStore store(options, identity_);
      SessionSync sync(engine_, &store);
      Session session = engine_.new_session();
      for (int round = 0; round < kRounds; ++round) {
        const auto i = static_cast<std::size_t>((child + round) % 2);
        sync.remember(sessions[i]);
        const std::int64_t n = sync.sync(session, prompts[1 - i]).n_tokens;
        if (n != 0 && n != 79) ::_exit(1);  // there is no other state
      }
      ::_exit(store.warning().empty() && store.stats().files_damaged == 0 ? 0 : 2);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_TRUE(verify_prefix_store(directory_.path()).damaged.empty());
  PrefixStore store(options, identity_);
  SessionSync sync(engine_, &store);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(sync.remember(sessions[i]));
    EXPECT_LE(summarize_prefix_store(directory_.path()).bytes, options.max_bytes);
    Session session = engine_.new_session();
    ASSERT_EQ(sync.sync(session, prompts[i]).n_tokens, 79);
    const auto last = std::span(prompts[i]).subspan(79);
    test::expect_same_bits(engine_.prefill(session, last), engine_.prefill(sessions[i], last));
  }
}

}  // namespace
}  // namespace moeflux
