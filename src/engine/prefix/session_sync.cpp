#include "engine/prefix/session_sync.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/host_bytes.h"
#include "runtime/snapshot/session_image.h"
#include "source/model_identity.h"

namespace moeflux {
namespace {

// To be raised when a change of the program changes a bit of what sessions hold.
constexpr int kArithmetic = 1;

// Rows of that many positions are one image in a file, so that no file must fit into memory.
constexpr std::int64_t kSlice = kKvLanes;

template <class Body>
void for_each_slice(std::int64_t first, std::int64_t end, Body body) {
  for (std::int64_t at = first; at < end; at += kSlice) body(at, std::min(kSlice, end - at));
}

std::int64_t common_length(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

void keep_in_memory(Session& session) {
  const int n_fixed = session.has_checkpoint(0) ? 1 : 0;  // that one is never evicted
  if (session.is_recurrent() && session.max_checkpoints() > n_fixed) session.checkpoint();
}

std::vector<KvView> caches_of(const Session& session, PrefixPart part) {
  return part == PrefixPart::Mtp ? mtp_caches(session) : kv_caches(session);
}

}  // namespace

std::string prefix_identity(const Engine& engine) {
  return fmt::format("{} {} kv {} arithmetic {}", model_identity(engine.source()),
                     precision_name(engine.precision()), kv_type_name(engine.kv_type()),
                     kArithmetic);
}

std::string_view prefix_origin_name(PrefixOrigin origin) {
  switch (origin) {
    case PrefixOrigin::Nothing:
      return "none";
    case PrefixOrigin::Session:
      return "session";
    case PrefixOrigin::Checkpoint:
      return "checkpoint";
    case PrefixOrigin::Store:
      return "store";
  }
  return "?";
}

// The blocks of keys and values, and the state where it holds something: without linear layers a
// position at the end of a block has none.
std::vector<SessionSync::Member> SessionSync::members(const Session& session,
                                                      const PrefixKeys& keys,
                                                      std::int64_t position) const {
  std::vector<Member> all;
  const auto add = [&](const PrefixName& name, std::int64_t first, std::uint64_t more_bytes) {
    all.push_back(
        {{.identity = store_->identity(),
          .name = name,
          .first = first,
          .tokens = keys.tokens().first(static_cast<std::size_t>(name.end)),
          .payload_bytes = rows_image_bytes(kv_caches(session), name.end - first) + more_bytes},
         first,
         name.end});
  };
  const std::int64_t whole = position / keys.block();
  for (std::int64_t i = 0; i < whole; ++i) add(keys.block_name(i), i * keys.block(), 0);
  if (position > whole * keys.block() || session.is_recurrent())
    add(keys.state_name(position), whole * keys.block(), recurrent_image_bytes(session));
  return all;
}

// The row of a position needs the token after it: with positions [a, b) go rows [a - 1, b - 1).
std::vector<SessionSync::Member> SessionSync::mtp_members(const Session& session,
                                                          const PrefixKeys& keys,
                                                          std::int64_t position) const {
  std::vector<Member> all;
  if (!session.has_mtp()) return all;
  for (Member& member : members(session, keys, position)) {
    member.info.name = member.info.name.as(PrefixPart::Mtp);
    member.end = member.end - 1;
    member.first = std::max<std::int64_t>(member.first - 1, 0);
    member.info.first = member.first;
    member.info.payload_bytes = rows_image_bytes(mtp_caches(session), member.end - member.first);
    if (member.end > member.first) all.push_back(std::move(member));
  }
  return all;
}

void SessionSync::write_payload(const Session& session, const Member& member,
                                PrefixFileWriter& writer) {
  if (member.info.name.part == PrefixPart::State)
    for (const Bytes& block : recurrent_blocks(session))
      writer.write({HostBytes(session.backend(), block).data(), block.size});
  const std::vector<KvView> caches = caches_of(session, member.info.name.part);
  for_each_slice(member.first, member.end, [&](std::int64_t at, std::int64_t n) {
    buffer_.resize(rows_image_bytes(caches, n));
    export_rows(session.backend(), caches, at, n, buffer_);
    writer.write(buffer_);
  });
}

void SessionSync::read_payload(Session& session, const Member& member, PrefixFileReader& reader) {
  if (member.info.name.part == PrefixPart::State)
    for (const Bytes& block : recurrent_blocks(session)) {
      HostBytes bytes(session.backend(), block);
      reader.read({bytes.data(), block.size});
      bytes.store();
    }
  const std::vector<KvView> caches = caches_of(session, member.info.name.part);
  for_each_slice(member.first, member.end, [&](std::int64_t at, std::int64_t n) {
    buffer_.resize(rows_image_bytes(caches, n));
    reader.read(buffer_);
    import_rows(session.backend(), caches, at, n, buffer_);
  });
}

SyncResult SessionSync::sync(Session& session, std::span<const TokenId> tokens) {
  const std::int64_t limit =
      std::min(static_cast<std::int64_t>(tokens.size()) - 1, session.max_length());
  if (limit <= 0) {
    session.reset();
    return {};
  }
  const auto within = tokens.first(static_cast<std::size_t>(limit));
  std::int64_t n_common = common_length(session.tokens(), within);
  std::int64_t n_kept = session.nearest_rewind(n_common);
  if (store_ != nullptr) {
    const PrefixKeys keys = store_->keys(within);
    for (std::int64_t most = limit; most > n_kept;) {
      const auto positions = store_->find(keys, most, session.is_recurrent());
      if (positions.empty() || positions[0] <= n_kept) break;
      if (load(session, keys, positions[0], n_common)) return {positions[0], PrefixOrigin::Store};
      n_common = n_kept = 0;  // what was in the session has been written over
      most = positions[0] - 1;
    }
  }
  const bool as_it_was =
      !session.is_recurrent() || (n_kept == session.length() && !session.is_poisoned());
  session.rewind(n_kept);
  if (n_kept == 0) return {};
  return {n_kept, as_it_was ? PrefixOrigin::Session : PrefixOrigin::Checkpoint};
}

bool SessionSync::load(Session& session, const PrefixKeys& keys, std::int64_t position,
                       std::int64_t n_common) {
  const std::int64_t n_seen = session.mtp_start() == 0 ? session.mtp_length() : 0;
  const std::int64_t n_rows = std::clamp<std::int64_t>(n_common - 1, 0, n_seen);
  try {
    if (load_members(session, keys, position, n_common)) {
      session.adopt(keys.tokens().first(static_cast<std::size_t>(position)), 0,
                    load_mtp(session, keys, position, n_rows));
      keep_in_memory(session);
      return true;
    }
  } catch (...) {
    session.reset();
    throw;
  }
  session.reset();
  return false;
}

bool SessionSync::load_members(Session& session, const PrefixKeys& keys, std::int64_t position,
                               std::int64_t n_common) {
  for (const Member& member : members(session, keys, position)) {
    // The rows of a common prefix are the same bytes; the state is another one.
    if (member.info.name.part == PrefixPart::Kv && member.end <= n_common) {
      store_->touch(member.info.name);
      continue;
    }
    const bool sound = store_->read(
        member.info, [&](PrefixFileReader& reader) { read_payload(session, member, reader); });
    if (!sound) return false;
  }
  return true;
}

// As many rows from the first on as there are, n_rows of them in the session already. Drafts get
// worse without the others, nothing else.
std::int64_t SessionSync::load_mtp(Session& session, const PrefixKeys& keys, std::int64_t position,
                                   std::int64_t n_rows) {
  for (const Member& member : mtp_members(session, keys, position)) {
    if (member.end <= n_rows) continue;
    const bool sound =
        store_->has(member.info.name) && store_->read(member.info, [&](PrefixFileReader& reader) {
          read_payload(session, member, reader);
        });
    // A file that turned out damaged has written over rows of its own range.
    if (!sound) return std::min(n_rows, member.first);
    n_rows = member.end;
  }
  return n_rows;
}

bool SessionSync::remember(Session& session) {
  if (session.length() == 0 || session.is_poisoned()) return false;
  keep_in_memory(session);
  return store_ != nullptr && store(session);
}

std::int64_t SessionSync::furthest_stored(const Session& session, const PrefixKeys& keys) const {
  const auto positions = store_->find(keys, session.length(), session.is_recurrent());
  return positions.empty() ? 0 : positions[0];
}

bool SessionSync::store(const Session& session) {
  const auto tokens = session.tokens();
  if (std::find(tokens.begin(), tokens.end(), kUnknownToken) != tokens.end()) return false;
  const PrefixKeys keys = store_->keys(tokens);
  std::vector<Member> all = members(session, keys, session.length());
  if (session.mtp_start() == 0) {
    for (Member& member : mtp_members(session, keys, session.length()))
      if (member.end <= session.mtp_length()) all.push_back(std::move(member));
  }
  std::vector<Member> missing;
  std::vector<PrefixFileInfo> files, kept;
  for (Member& member : all) {
    if (store_->has(member.info.name)) {
      store_->touch(member.info.name);
      kept.push_back(std::move(member.info));
    } else {
      files.push_back(member.info);
      missing.push_back(std::move(member));
    }
  }
  if (missing.empty()) return true;
  if (!is_worth_storing(store_->options().worth,
                        {.n_tokens = session.length(),
                         .n_stored = furthest_stored(session, keys),
                         .bytes = total_bytes(files),
                         .seconds_per_token = engine_.seconds_per_prompt_token()}))
    return false;
  if (!store_->reserve(files, kept)) return false;
  const bool written = std::all_of(missing.begin(), missing.end(), [&](const Member& member) {
    return store_->write(member.info,
                         [&](PrefixFileWriter& writer) { write_payload(session, member, writer); });
  });
  store_->trim();
  return written;
}

void SessionSync::feed(Session& session, std::span<const TokenId> tokens,
                       std::span<const std::int64_t> points, const Feed& feed) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  const std::int64_t n_prompt = n - session.length();
  MOEFLUX_ASSERT(session.length() < n &&
                 common_length(session.tokens(), tokens) == session.length());
  std::vector<std::int64_t> stops(points.begin(), points.end());
  if (store_ != nullptr && session.is_recurrent()) {
    const std::int64_t interval = store_->options().interval;
    for (std::int64_t at = interval; at < n; at += interval) stops.push_back(at);
  }
  std::sort(stops.begin(), stops.end());
  for (const std::int64_t stop : stops) {
    if (stop <= session.length() || stop > n) continue;
    feed(tokens.subspan(static_cast<std::size_t>(session.length()),
                        static_cast<std::size_t>(stop - session.length())),
         n_prompt);
    remember(session);
  }
  if (session.length() < n)
    feed(tokens.subspan(static_cast<std::size_t>(session.length())), n_prompt);
}

std::vector<float> SessionSync::prefill(Session& session, std::span<const TokenId> tokens,
                                        std::span<const std::int64_t> points,
                                        const std::function<bool()>& cancelled) {
  std::vector<float> logits(static_cast<std::size_t>(engine_.config().n_vocab));
  feed(session, tokens, points, [&](std::span<const TokenId> piece, std::int64_t n_prompt) {
    engine_.prefill(session, piece, logits,
                    {.cancelled = cancelled, .hidden = {}, .n_prompt = n_prompt});
  });
  return logits;
}

}  // namespace moeflux
