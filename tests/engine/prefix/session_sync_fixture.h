// An engine with a prefix store, as a process has them, and a directory to share.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/prefix/prefix_store_directory.h"
#include "engine/prefix/session_sync.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {

using Positions = std::vector<std::int64_t>;

inline constexpr PrefixWorth kAnyWorth = {.min_tokens = 1, .min_new = 1, .seconds_per_byte = 0};

inline EngineOptions small_options(KvType kv = KvType::F32, int n_checkpoints = 0) {
  EngineOptions options;
  options.n_threads = 1;
  options.context_length = 160;
  options.max_batch = 64;
  options.kv_type = kv;
  options.n_checkpoints = n_checkpoints;
  options.n_sessions = 4;
  options.memory_bytes = std::uint64_t{1} << 30;
  options.elastic = false;
  return options;
}

// An engine and a store of its own, as a process has them; another one may use the directory too.
struct Process {
  Process(const std::string& model, const std::string& directory,
          const EngineOptions& options = small_options())
      : engine(source_path(model), options),
        store({.directory = directory, .worth = kAnyWorth, .block = 16, .interval = 64},
              prefix_identity(engine)),
        sync(engine, &store) {}

  std::vector<TokenId> tokens(std::int64_t n, std::uint64_t seed = 7) {
    return Random(seed).tokens(n, engine.config().n_vocab);
  }
  // Logits at the end of `tokens`, and after each of a few more.
  std::vector<float> logits(Session& session, std::span<const TokenId> tokens) {
    std::vector<float> all =
        engine.prefill(session, tokens.subspan(static_cast<std::size_t>(session.length())));
    std::vector<float> last(all.size());
    for (TokenId token = 3; token < 6; ++token) {
      const Span span{.session = &session, .tokens = {&token, 1}, .logits = last.data()};
      engine.run({&span, 1});
      all.insert(all.end(), last.begin(), last.end());
    }
    return all;
  }
  std::vector<float> fresh_logits(std::span<const TokenId> tokens) {
    Session session = engine.new_session();
    return logits(session, tokens);
  }
  void remember_at(std::span<const TokenId> tokens, const Positions& positions) {
    Session session = engine.new_session();
    sync.sync(session, tokens);
    sync.prefill(session, tokens, positions);
  }

  Engine engine;
  PrefixStore store;
  SessionSync sync;
};

inline void expect_synced(const SyncResult& result, std::int64_t n, PrefixOrigin origin) {
  EXPECT_EQ(result.n_tokens, n);
  EXPECT_EQ(prefix_origin_name(result.origin), prefix_origin_name(origin));
}

// Has a directory for a store, and knows its files.
class SessionSyncTest : public testing::Test {
 protected:
  std::vector<std::string> files(const std::string& ending = "") const {
    std::vector<std::string> paths;
    for (const PrefixFile& file : scan_prefix_store(directory_.path()).files) {
      if (file.path(directory_.path()).ends_with(ending))
        paths.push_back(file.path(directory_.path()));
    }
    return paths;
  }
  TempDir directory_;
};

}  // namespace moeflux::test
