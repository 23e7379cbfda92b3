// Brings a session to the longest prefix of some tokens that need not be computed again: what
// it holds already, what it can go back to, or what the prefix store has. And keeps prefixes for
// later, in memory and on disk.
//
// A session that was brought back continues bit for bit as one that has read all of its tokens.
// Nothing here fails because of the store: at worst a session starts from nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix/prefix_store.h"

namespace moeflux {

// Names the model and everything else that changes what its sessions hold: precision, type of keys
// and values, and the arithmetic of this program.
std::string prefix_identity(const Engine& engine);

enum class PrefixOrigin { Nothing, Session, Checkpoint, Store };
std::string_view prefix_origin_name(
    PrefixOrigin origin);  // "none", "session", "checkpoint", "store"

struct SyncResult {
  std::int64_t n_tokens = 0;  // the session holds these, and nothing else
  PrefixOrigin origin = PrefixOrigin::Nothing;
};

class SessionSync {
 public:
  // Both must outlive it; `store` may be null: then there is only memory.
  SessionSync(Engine& engine, PrefixStore* store) : engine_(engine), store_(store) {}

  // Leaves at least the last token to be run, since its logits are needed. Whatever the session
  // held beyond the common prefix is gone.
  SyncResult sync(Session& session, std::span<const TokenId> tokens);

  // The session has come to a place worth coming back to: sets a checkpoint if it may keep any, and
  // writes what the store does not have if it is worth it. False when the store has not got all of
  // it.
  bool remember(Session& session);

  // Feeds what `tokens` has more than the session, which must hold a prefix of them, with stops
  // to remember at `points` (positions; others are ignored) and, in a recurrent model, after every
  // options().interval tokens.
  // A piece of a prompt of which n_prompt tokens are to be read.
  using Feed = std::function<void(std::span<const TokenId> piece, std::int64_t n_prompt)>;
  void feed(Session& session, std::span<const TokenId> tokens, std::span<const std::int64_t> points,
            const Feed& feed);
  // The same with Engine::prefill. Returns the logits after the last token.
  std::vector<float> prefill(Session& session, std::span<const TokenId> tokens,
                             std::span<const std::int64_t> points,
                             const std::function<bool()>& cancelled = {});

 private:
  // A file of the chain that ends at a position.
  struct Member {
    PrefixFileInfo info;
    std::int64_t first = 0, end = 0;  // rows of the caches, or of the MTP head
  };
  std::vector<Member> members(const Session& session, const PrefixKeys& keys,
                              std::int64_t position) const;
  std::vector<Member> mtp_members(const Session& session, const PrefixKeys& keys,
                                  std::int64_t position) const;
  // Or the session is empty.
  bool load(Session& session, const PrefixKeys& keys, std::int64_t position, std::int64_t n_common);
  bool load_members(Session& session, const PrefixKeys& keys, std::int64_t position,
                    std::int64_t n_common);
  std::int64_t load_mtp(Session& session, const PrefixKeys& keys, std::int64_t position,
                        std::int64_t n_rows);
  std::int64_t furthest_stored(const Session& session, const PrefixKeys& keys) const;
  bool store(const Session& session);
  void write_payload(const Session& session, const Member& member, PrefixFileWriter& writer);
  void read_payload(Session& session, const Member& member, PrefixFileReader& reader);

  Engine& engine_;
  PrefixStore* store_;
  std::vector<std::byte> buffer_;  // rows of a few positions on their way
};

}  // namespace moeflux
