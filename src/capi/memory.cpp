// What sequences remember: going back, copies, checkpoints, and snapshots in memory and in files.
#include <algorithm>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "engine/prefix/session_sync.h"
#include "runtime/snapshot/session_image.h"
#include "runtime/snapshot/snapshot.h"

namespace moeflux::capi {
namespace {

Session& existing(mf_ctx& ctx, int seq_id) {
  Session* session = find_sequence(ctx, seq_id);
  if (session == nullptr) fail_with(MF_ERROR_NOT_FOUND, "there is no sequence {}", seq_id);
  return *session;
}

std::int64_t to_position(std::size_t pos) {
  return static_cast<std::int64_t>(std::min<std::size_t>(pos, INT64_MAX));
}

void remove(Session& session, int seq_id, std::int64_t begin, std::int64_t end) {
  const std::int64_t length = session.length();
  begin = std::clamp<std::int64_t>(begin, 0, length);
  if (end >= 0 && end < length) {
    if (begin >= end) return;  // nothing
    fail_with(MF_ERROR_UNSUPPORTED,
              "positions {} to {} of sequence {} lie before others, up to {}: only the end of a "
              "sequence can be removed",
              begin, end, seq_id, length);
  }
  if (begin == length && !session.is_poisoned()) return;
  const std::int64_t nearest = session.nearest_rewind(begin);
  if (nearest != begin) {
    fail_with(MF_ERROR_NEEDS_REBUILD,
              "sequence {} cannot be cut to position {}: the recurrent state of that position is "
              "gone, the nearest is at {}; use mf_memory_seq_rebuild()",
              seq_id, begin, nearest);
  }
  session.rewind(begin);
}

void rebuild(mf_ctx& ctx, int seq_id, std::size_t pos) {
  Evaluation evaluation(ctx);
  Session& session = existing(ctx, seq_id);
  if (pos > static_cast<std::size_t>(session.length())) {
    fail_with(MF_ERROR_BAD_POSITION, "position {} lies beyond sequence {}, which has {} tokens",
              pos, seq_id, session.length());
  }
  const auto nearest = static_cast<std::size_t>(session.nearest_rewind(to_position(pos)));
  const auto first = session.tokens().begin();
  const std::vector<TokenId> replay(first + static_cast<std::ptrdiff_t>(nearest),
                                    first + static_cast<std::ptrdiff_t>(pos));
  if (std::find(replay.begin(), replay.end(), kUnknownToken) != replay.end()) {
    fail_with(MF_ERROR_UNSUPPORTED,
              "the tokens of sequence {} before position {} are not known: they came from a "
              "snapshot without tokens",
              seq_id, pos);
  }
  session.rewind(static_cast<std::int64_t>(nearest));
  if (!replay.empty()) evaluation.prefill(session, replay);
}

// In pieces, so that the copy takes little memory beside the two sequences.
void copy_sequence(const Session& from, Session& to) {
  constexpr std::int64_t kPiece = 128;  // positions
  std::vector<std::byte> bytes;
  const auto piece = [&](std::uint64_t size) {
    bytes.resize(size);
    return std::span<std::byte>(bytes);
  };
  for (const auto& [caches_of, length] :
       {std::pair(&kv_caches, from.length()), std::pair(&mtp_caches, from.mtp_length())}) {
    const std::vector<KvView> caches = caches_of(from), copies = caches_of(to);
    for (std::int64_t first = 0; first < length; first += kPiece) {
      const std::int64_t n = std::min(kPiece, length - first);
      const std::span<std::byte> image = piece(rows_image_bytes(caches, n));
      export_rows(from.backend(), caches, first, n, image);
      import_rows(to.backend(), copies, first, n, image);
    }
  }
  const std::span<std::byte> image = piece(recurrent_image_bytes(from));
  export_recurrent(from, image);
  import_recurrent(to, image);
  to.adopt(from.tokens(), from.mtp_start(), from.mtp_length());
}

constexpr int kNewest = 3;

SnapshotVersion version_of(int version) {
  if (version < 1 || version > kNewest)
    fail_with(MF_ERROR_BAD_INPUT, "snapshots have the versions 1 to {}, not {}", kNewest, version);
  return static_cast<SnapshotVersion>(version);
}

// To be written: one that does not exist yet is empty.
const Session& readable(mf_ctx& ctx, int seq_id) {
  const Session& session = sequence(ctx, seq_id);
  check_sound(session, seq_id, "it has no state to save");
  return session;
}

// A sequence that a failed load would have begun is taken away again.
template <class Load>
void load(mf_ctx& ctx, int seq_id, Load&& body) {
  const bool existed = find_sequence(ctx, seq_id) != nullptr;
  try {
    body(sequence(ctx, seq_id));
  } catch (...) {
    if (!existed) ctx.sequences.erase(seq_id);
    throw;
  }
}

}  // namespace
}  // namespace moeflux::capi

using namespace moeflux;
using namespace moeflux::capi;

void mf_memory_clear(mf_ctx* ctx) {
  if (ctx == nullptr) return;
  for (auto& [id, session] : ctx->sequences) session.reset();
}

int mf_memory_seq_rm(mf_ctx* ctx, int seq_id, int p0, int p1) {
  const mf_status status = guarded([&] {
    need(ctx, "ctx");
    if (seq_id != -1) {
      if (Session* session = find_sequence(*ctx, seq_id)) remove(*session, seq_id, p0, p1);
      return;
    }
    if (p0 > 0 || p1 >= 0) {
      fail_with(MF_ERROR_UNSUPPORTED, "seq_id -1 stands for all of all sequences: p0 0, p1 -1");
    }
    mf_memory_clear(ctx);
  });
  return status == MF_OK ? 1 : 0;
}

mf_status mf_memory_seq_rebuild(mf_ctx* ctx, int seq_id, size_t pos) {
  return guarded([&] { rebuild(need(ctx, "ctx"), seq_id, pos); });
}

int64_t mf_memory_seq_nearest(const mf_ctx* ctx, int seq_id, size_t pos) {
  return guarded_value<int64_t>(-1, [&] {
    const Session* session = find_sequence(need(ctx, "ctx"), seq_id);
    return session == nullptr ? 0 : session->nearest_rewind(to_position(pos));
  });
}

int mf_memory_seq_pos_max(mf_ctx* ctx, int seq_id) {
  return static_cast<int>(mf_memory_seq_length(ctx, seq_id)) - 1;
}

size_t mf_memory_seq_length(const mf_ctx* ctx, int seq_id) {
  return guarded_value<size_t>(0, [&] { return sequence_length(need(ctx, "ctx"), seq_id); });
}

mf_status mf_memory_seq_tokens(const mf_ctx* ctx, int seq_id, int32_t* tokens, size_t capacity,
                               size_t* n) {
  return guarded([&] {
    const Session* session = find_sequence(need(ctx, "ctx"), seq_id);
    const std::span<const TokenId> all =
        session == nullptr ? std::span<const TokenId>() : session->tokens();
    need(n, "n") = all.size();
    if (all.size() > capacity) {
      fail_with(MF_ERROR_BUFFER_TOO_SMALL, "sequence {} has {} tokens, the buffer room for {}",
                seq_id, all.size(), capacity);
    }
    if (!all.empty()) std::copy(all.begin(), all.end(), &need(tokens, "tokens"));
  });
}

mf_status mf_memory_seq_cp(mf_ctx* ctx, int from, int to) {
  return guarded([&] {
    const Session& source = existing(need(ctx, "ctx"), from);
    if (from == to) return;
    check_sound(source, from, "there is nothing to copy");
    copy_sequence(source, sequence(*ctx, to));
  });
}

mf_status mf_memory_seq_sync(mf_ctx* ctx, int seq_id, const int32_t* tokens, size_t n,
                             size_t* n_kept) {
  return guarded([&] {
    need(ctx, "ctx");
    need(n_kept, "n_kept") = 0;
    if (n == 0) fail_with(MF_ERROR_BAD_INPUT, "there are no tokens");
    const std::span<const TokenId> all = tokens_of(ctx->engine(), tokens, n, "tokens");
    const Turn turn(ctx->model());
    SessionSync sync(ctx->engine(), ctx->model().prefix_store());
    *n_kept = static_cast<size_t>(sync.sync(sequence(*ctx, seq_id), all).n_tokens);
  });
}

mf_status mf_memory_seq_remember(mf_ctx* ctx, int seq_id) {
  return guarded([&] {
    Session& session = existing(need(ctx, "ctx"), seq_id);
    check_sound(session, seq_id, "there is nothing to keep");
    const Turn turn(ctx->model());
    SessionSync(ctx->engine(), ctx->model().prefix_store()).remember(session);
  });
}

mf_status mf_memory_seq_keep(mf_ctx* ctx, int seq_id) {
  return guarded([&] {
    existing(need(ctx, "ctx"), seq_id);
    std::erase_if(ctx->sequences, [&](const auto& entry) { return entry.first != seq_id; });
  });
}

mf_status mf_memory_seq_free(mf_ctx* ctx, int seq_id) {
  return guarded([&] {
    if (find_sequence(need(ctx, "ctx"), seq_id) != nullptr) ctx->sequences.erase(seq_id);
  });
}

mf_status mf_seq_checkpoint(mf_ctx* ctx, int seq_id, size_t pos) {
  return guarded([&] {
    need(ctx, "ctx");
    if (const Session* present = find_sequence(*ctx, seq_id))
      check_sound(*present, seq_id, "there is nothing to keep");
    if (const std::size_t length = sequence_length(*ctx, seq_id); pos != length) {
      fail_with(MF_ERROR_BAD_POSITION,
                "a checkpoint is of the present state: position {} is not the length of sequence "
                "{}, which is {}",
                pos, seq_id, length);
    }
    sequence(*ctx, seq_id).checkpoint();
  });
}

mf_status mf_seq_restore(mf_ctx* ctx, int seq_id, size_t pos) {
  return guarded([&] {
    Session* session = find_sequence(need(ctx, "ctx"), seq_id);
    if (session == nullptr || !session->has_checkpoint(to_position(pos)))
      fail_with(MF_ERROR_NOT_FOUND, "sequence {} has no checkpoint at {}", seq_id, pos);
    session->rewind(to_position(pos));
  });
}

mf_status mf_seq_forget(mf_ctx* ctx, int seq_id, size_t pos) {
  return guarded([&] {
    if (Session* session = find_sequence(need(ctx, "ctx"), seq_id))
      session->forget_checkpoint(to_position(pos));
  });
}

size_t mf_seq_checkpoint_count(const mf_ctx* ctx, int seq_id) {
  return guarded_value<size_t>(0, [&] {
    const Session* session = find_sequence(need(ctx, "ctx"), seq_id);
    return session == nullptr ? 0 : session->checkpoints().size();
  });
}

mf_status mf_checkpoint_pos(mf_ctx* ctx, size_t pos) {
  return mf_seq_checkpoint(ctx, 0, pos);
}
mf_status mf_restore_to(mf_ctx* ctx, size_t pos) {
  return mf_seq_restore(ctx, 0, pos);
}
mf_status mf_forget_pos(mf_ctx* ctx, size_t pos) {
  return mf_seq_forget(ctx, 0, pos);
}
size_t mf_checkpoint_count(const mf_ctx* ctx) {
  return mf_seq_checkpoint_count(ctx, 0);
}

mf_status mf_set_max_checkpoints(mf_ctx* ctx, size_t count) {
  return guarded([&] {
    constexpr size_t kMost = 1 << 20;
    need(ctx, "ctx");
    if (count > kMost)
      fail_with(MF_ERROR_BAD_INPUT, "{} checkpoints are more than {}", count, kMost);
    const auto set_all = [&](int n) {
      for (auto& [id, session] : ctx->sequences) session.set_max_checkpoints(n);
    };
    try {
      set_all(static_cast<int>(count));
    } catch (...) {
      set_all(ctx->max_checkpoints);
      throw;
    }
    ctx->max_checkpoints = static_cast<int>(count);
  });
}

size_t mf_seq_state_size(const mf_ctx* ctx, int seq_id, int version) {
  return guarded_value<size_t>(0, [&] {
    auto& context = const_cast<mf_ctx&>(need(ctx, "ctx"));  // an empty sequence begins to exist
    const Session& session = readable(context, seq_id);
    const SnapshotModel model = context.model().snapshot_model();
    return static_cast<size_t>(snapshot_bytes(session, model, version_of(version)));
  });
}

int64_t mf_seq_state_save(mf_ctx* ctx, int seq_id, int version, void* buffer, size_t size) {
  return guarded_value<int64_t>(-1, [&] {
    const Session& session = readable(need(ctx, "ctx"), seq_id);
    const SnapshotModel model = ctx->model().snapshot_model();
    const std::uint64_t needed = snapshot_bytes(session, model, version_of(version));
    if (needed > size) {
      fail_with(MF_ERROR_BUFFER_TOO_SMALL, "the snapshot takes {} bytes, the buffer has {}", needed,
                size);
    }
    auto* bytes = static_cast<std::byte*>(buffer);
    return static_cast<int64_t>(
        write_snapshot(session, model, version_of(version), {&need(bytes, "buffer"), size}));
  });
}

mf_status mf_seq_state_load(mf_ctx* ctx, int seq_id, const void* buffer, size_t size) {
  return guarded([&] {
    const auto* bytes = static_cast<const std::byte*>(buffer);
    const SnapshotModel model = need(ctx, "ctx").model().snapshot_model();
    load(*ctx, seq_id, [&](Session& session) {
      read_snapshot(session, model, {&need(bytes, "buffer"), size});
    });
  });
}

mf_status mf_seq_state_save_file(mf_ctx* ctx, int seq_id, int version, const char* path) {
  return guarded([&] {
    const Session& session = readable(need(ctx, "ctx"), seq_id);
    save_snapshot(&need(path, "path"), session, ctx->model().snapshot_model(), version_of(version));
  });
}

mf_status mf_seq_state_load_file(mf_ctx* ctx, int seq_id, const char* path) {
  return guarded([&] {
    const std::string file = &need(path, "path");
    const SnapshotModel model = need(ctx, "ctx").model().snapshot_model();
    load(*ctx, seq_id, [&](Session& session) { load_snapshot(file, session, model); });
  });
}

size_t mf_state_size(const mf_ctx* ctx) {
  return mf_seq_state_size(ctx, 0, kNewest);
}
int64_t mf_state_save(mf_ctx* ctx, void* buffer, size_t size) {
  return mf_seq_state_save(ctx, 0, kNewest, buffer, size);
}
int mf_state_load(mf_ctx* ctx, const void* buffer, size_t size) {
  return mf_seq_state_load(ctx, 0, buffer, size) == MF_OK ? 0 : -1;
}
