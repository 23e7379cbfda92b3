// Snapshots of sequences, in memory and in files.
#include "capi/guard.h"
#include "capi/handles.h"
#include "runtime/snapshot/snapshot.h"

namespace moeflux::capi {
namespace {

constexpr int kNewest = 3;

SnapshotVersion version_of(int version) {
  if (version < 1 || version > kNewest)
    fail_with(MF_ERROR_BAD_INPUT, "snapshots have the versions 1 to {}, not {}", kNewest, version);
  return static_cast<SnapshotVersion>(version);
}

// To be written: one that does not exist yet is empty.
const Session& readable(mf_ctx& ctx, int seq_id) {
  const Session& session = sequence(ctx, seq_id);
  if (session.is_poisoned()) {
    fail_with(MF_ERROR_BROKEN_SEQUENCE,
              "an earlier evaluation of sequence {} failed half-way; it has no state to save",
              seq_id);
  }
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
