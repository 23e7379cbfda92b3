// What a session remembers, as bytes: the parts that snapshots and the prefix store are made of.
//
//   rows       of caches, one after the other: those of the positions asked for (keys and then
//              values, or latents), as runtime/snapshot/kv_rows.h orders them. The MTP head's rows
//              count from mtp_start()
//   recurrent  for each linear layer, in order: convolution inputs, then the delta state, as
//              DeltaState has them
//
// Lossless for every KV type: the bytes are the session's own, so only a session of the same model
// and the same KV type can take them in. Nothing here touches tokens(), lengths or checkpoints; who
// has brought in all parts ends with Session::adopt(). A range that is not inside the context, or a
// span of another size than ..._image_bytes() says, is the caller's bug.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/session.h"

namespace moeflux {

// What they are made of, in their order: of each layer with a cache, of the MTP head (none without
// one), of each linear layer.
std::vector<KvView> kv_caches(const Session& session);
std::vector<KvView> mtp_caches(const Session& session);
std::vector<Bytes> recurrent_blocks(const Session& session);

std::uint64_t rows_image_bytes(const std::vector<KvView>& caches, std::int64_t n);
void export_rows(Backend& backend, const std::vector<KvView>& caches, std::int64_t first,
                 std::int64_t n, std::span<std::byte> out);
void import_rows(Backend& backend, const std::vector<KvView>& caches, std::int64_t first,
                 std::int64_t n, std::span<const std::byte> in);

// Of the state as it is, that after the last token; 0 bytes for a session without linear layers.
std::uint64_t recurrent_image_bytes(const Session& session);
void export_recurrent(const Session& session, std::span<std::byte> out);
void import_recurrent(Session& session, std::span<const std::byte> in);

}  // namespace moeflux
