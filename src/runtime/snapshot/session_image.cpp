#include "runtime/snapshot/session_image.h"

#include "base/error.h"
#include "runtime/snapshot/kv_rows.h"

namespace moeflux {
namespace {

void append_caches(const LayerState& layer, std::vector<KvView>& caches) {
  if (const auto* attention = std::get_if<AttentionState>(&layer)) {
    caches.push_back(attention->k.view());
    caches.push_back(attention->v.view());
  } else if (const auto* latent = std::get_if<LatentState>(&layer)) {
    caches.push_back(latent->kv.view());
  }
}

// The first `bytes` of `rest`, which then begins behind them.
template <class Byte>
std::span<Byte> take(std::span<Byte>& rest, std::uint64_t bytes) {
  MOEFLUX_ASSERT(bytes <= rest.size());
  const std::span<Byte> head = rest.first(static_cast<std::size_t>(bytes));
  rest = rest.subspan(head.size());
  return head;
}

}  // namespace

std::vector<KvView> kv_caches(const Session& session) {
  std::vector<KvView> caches;
  for (int i = 0; i < session.n_layers(); ++i) append_caches(session.layer(i), caches);
  return caches;
}

std::vector<KvView> mtp_caches(const Session& session) {
  std::vector<KvView> caches;
  if (session.has_mtp()) append_caches(session.mtp(), caches);
  return caches;
}

std::vector<Bytes> recurrent_blocks(const Session& session) {
  std::vector<Bytes> blocks;
  for (int i = 0; i < session.n_layers(); ++i) {
    if (const auto* delta = std::get_if<DeltaState>(&session.layer(i))) {
      blocks.push_back(whole(*delta->conv));
      blocks.push_back(whole(*delta->s));
    }
  }
  return blocks;
}

std::uint64_t rows_image_bytes(const std::vector<KvView>& caches, std::int64_t n) {
  std::uint64_t bytes = 0;
  for (const KvView& view : caches) bytes += kv_rows_bytes(view.shape, n);
  return bytes;
}

void export_rows(Backend& backend, const std::vector<KvView>& caches, std::int64_t first,
                 std::int64_t n, std::span<std::byte> out) {
  MOEFLUX_ASSERT(out.size() == rows_image_bytes(caches, n));
  for (const KvView& view : caches)
    export_kv_rows(backend, view, first, n, take(out, kv_rows_bytes(view.shape, n)));
}

void import_rows(Backend& backend, const std::vector<KvView>& caches, std::int64_t first,
                 std::int64_t n, std::span<const std::byte> in) {
  MOEFLUX_ASSERT(in.size() == rows_image_bytes(caches, n));
  for (const KvView& view : caches)
    import_kv_rows(backend, view, first, n, take(in, kv_rows_bytes(view.shape, n)));
}

std::uint64_t recurrent_image_bytes(const Session& session) {
  std::uint64_t bytes = 0;
  for (const Bytes& block : recurrent_blocks(session)) bytes += block.size;
  return bytes;
}

void export_recurrent(const Session& session, std::span<std::byte> out) {
  MOEFLUX_ASSERT(out.size() == recurrent_image_bytes(session));
  for (const Bytes& block : recurrent_blocks(session))
    session.backend().download(block, take(out, block.size));
  session.backend().wait_for_all();
}

void import_recurrent(Session& session, std::span<const std::byte> in) {
  MOEFLUX_ASSERT(in.size() == recurrent_image_bytes(session));
  for (const Bytes& block : recurrent_blocks(session))
    session.backend().upload(take(in, block.size), block);
}

}  // namespace moeflux
