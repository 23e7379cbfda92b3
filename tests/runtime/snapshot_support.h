// Small models and sessions for tests of snapshots: no weights, states filled as a pass would.
#pragma once

#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backends/backend.h"
#include "base/memory_budget.h"
#include "runtime/snapshot/session_image.h"
#include "runtime/snapshot/snapshot.h"
#include "runtime/snapshot/snapshot_stream.h"
#include "support/loaded_model.h"
#include "support/random.h"

namespace moeflux::test {

using Bytes = std::vector<std::byte>;

inline constexpr int kVocab = 1000;
inline constexpr std::int64_t kContext = 50;

inline AttentionSpec attention_spec() {
  return {
      .n_heads = 4, .n_kv_heads = 2, .d_head = 40, .rope = make_rope(1e4, 8, false), .scale = 1};
}
inline GatedDeltaSpec delta_spec() {
  return {.n_key_heads = 1, .n_value_heads = 2, .d_key = 3, .d_value = 5, .conv_width = 4};
}
inline MlaSpec mla_spec() {
  return {.n_heads = 6,
          .q_rank = 0,
          .kv_rank = 33,
          .d_nope = 4,
          .d_rope = 6,
          .d_value = 4,
          .rope = make_rope(1e4, 6, true),
          .scale = 1,
          .latent_norm_eps = 1e-6f};
}

inline ModelConfig config_of(const std::vector<MixerSpec>& mixers) {
  ModelConfig config{.family = "test",
                     .d_model = 8,
                     .n_vocab = kVocab,
                     .context_length = 64,
                     .norm_eps = 1e-6f,
                     .layers = {},
                     .mtp = {}};
  for (const MixerSpec& mixer : mixers)
    config.layers.push_back(
        {mixer, MoeSpec{.n_experts = 4, .top_k = 2, .d_expert = 8, .router = {}}});
  return config;
}

// Two linear layers, a full one, and the same again; with an MTP head.
inline ModelConfig hybrid_config() {
  ModelConfig config = config_of(
      {delta_spec(), delta_spec(), attention_spec(), delta_spec(), delta_spec(), attention_spec()});
  config.mtp = LayerSpec{attention_spec(), DenseFfnSpec{.d_ff = 8}};
  return config;
}
inline ModelConfig mla_config() {
  return config_of({mla_spec(), mla_spec()});
}

// Rows of the first n positions.
inline void store_rows(const KvView& view, std::span<const float> x, std::int64_t n) {
  if (n == 0) return;
  Backend& backend = host_backend();
  const std::int64_t width = std::int64_t{view.shape.n_heads} * view.shape.d;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
  std::iota(positions.begin(), positions.end(), 0);
  const auto rows = backend.allocate(static_cast<std::uint64_t>(n * width) * 4, MemoryKind::Device);
  const auto list = backend.allocate(static_cast<std::uint64_t>(n) * 4, MemoryKind::Device);
  backend.upload(std::as_bytes(x.first(static_cast<std::size_t>(n * width))), whole(*rows));
  backend.upload(std::as_bytes(std::span(positions)), whole(*list));
  backend.store_kv({.cache = view,
                    .x = {rows.get(), 0, n, width, width},
                    .positions = {list.get(), 0, 1, n, n, ElementType::I32}});
}

inline void fill(const KvView& view, std::int64_t n, Random& random) {
  const std::int64_t width = std::int64_t{view.shape.n_heads} * view.shape.d;
  store_rows(view, random.floats(n * width, 3), n);
}

// A model, and sessions of it.
struct SmallModel {
  explicit SmallModel(ModelConfig model_config = hybrid_config(), KvType type = KvType::F32)
      : config(std::move(model_config)), kv_type(type) {}

  SnapshotModel snapshot() const { return {&config, identity}; }
  Session empty(std::int64_t context = kContext) {
    return Session(config, {context, kv_type, 2}, host_backend(), budget);
  }

  // A session that has seen `length` tokens and whose MTP head lags two behind.
  Session filled(std::int64_t length, std::uint64_t seed = 1) {
    Session session = empty();
    refill(session, length, seed);
    return session;
  }
  static void refill(Session& session, std::int64_t length, std::uint64_t seed) {
    Random random(seed);
    const std::int64_t n_mtp = session.has_mtp() ? std::max<std::int64_t>(0, length - 5) : 0;
    for (const KvView& view : kv_caches(session)) fill(view, length, random);
    for (const KvView& view : mtp_caches(session)) fill(view, n_mtp, random);
    for (const moeflux::Bytes& block : recurrent_blocks(session)) {
      const auto floats = random.floats(static_cast<std::int64_t>(block.size / 4));
      session.backend().upload(std::as_bytes(std::span(floats)), block);
    }
    session.adopt(random.tokens(length, kVocab), n_mtp > 0 ? 3 : 0, n_mtp);
  }

  ModelConfig config;
  KvType kv_type;
  std::string identity = "0123456789abcdef0123456789abcdef";
  MemoryBudget budget{1 << 26};
};

// Everything a session remembers, comparable.
struct Memory {
  std::vector<TokenId> tokens;
  std::int64_t mtp_start, mtp_length;
  Bytes kv, mtp, recurrent;
  std::vector<std::int64_t> checkpoints;

  bool operator==(const Memory&) const = default;
};

inline Memory memory_of(const Session& session) {
  Memory memory{.tokens = {session.tokens().begin(), session.tokens().end()},
                .mtp_start = session.mtp_start(),
                .mtp_length = session.mtp_length(),
                .kv = Bytes(rows_image_bytes(kv_caches(session), session.length())),
                .mtp = Bytes(rows_image_bytes(mtp_caches(session), session.mtp_length())),
                .recurrent = Bytes(recurrent_image_bytes(session)),
                .checkpoints = session.checkpoints()};
  export_rows(session.backend(), kv_caches(session), 0, session.length(), memory.kv);
  export_rows(session.backend(), mtp_caches(session), 0, session.mtp_length(), memory.mtp);
  export_recurrent(session, memory.recurrent);
  return memory;
}

inline Bytes written(const Session& session, const SnapshotModel& model, SnapshotVersion version) {
  Bytes bytes(snapshot_bytes(session, model, version));
  EXPECT_EQ(write_snapshot(session, model, version, bytes), bytes.size());
  return bytes;
}

template <class Body>
void expect_fault(SnapshotFault fault, std::initializer_list<std::string_view> parts, Body body) {
  try {
    body();
  } catch (const SnapshotError& error) {
    const std::string message = error.what();
    EXPECT_EQ(static_cast<int>(error.fault()), static_cast<int>(fault)) << message;
    for (const std::string_view part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    return;
  }
  ADD_FAILURE() << "no error; expected fault " << static_cast<int>(fault);
}

// Reading these bytes is refused, and the session does not notice.
inline void expect_refused(Session& session, const SnapshotModel& model,
                           std::span<const std::byte> bytes, SnapshotFault fault,
                           std::initializer_list<std::string_view> parts = {}) {
  const Memory before = memory_of(session);
  expect_fault(fault, parts, [&] { read_snapshot(session, model, bytes); });
  EXPECT_TRUE(memory_of(session) == before);
}

template <class T>
void put_at(Bytes& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <class T>
T get_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.subspan(offset, sizeof value).data(), sizeof value);
  return value;
}

// A file that changes between the look at it and the reading of it.
enum class Fading { Fails, Lies };
class FadingSource : public SnapshotSource {
 public:
  FadingSource(const Bytes& bytes, int n_good, Fading how)
      : bytes_(bytes), n_good_(n_good), how_(how) {}
  std::string name() const override { return "fading"; }
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    if (n_reads_++ < n_good_) return;
    if (how_ == Fading::Fails) fail(Errc::Io, "fading: reading failed");
    if (!out.empty()) out[0] ^= std::byte{1};
  }
  int n_reads() const { return n_reads_; }

 private:
  const Bytes& bytes_;
  int n_good_;
  Fading how_;
  mutable int n_reads_ = 0;
};

// Whichever read is the first to go wrong, the session is as before or empty.
template <class Read>
void expect_no_half_session(SmallModel& model, const Bytes& good, Fading how, Read read) {
  Session whole = model.empty();
  const FadingSource all(good, 1 << 20, how);
  read(whole, all);
  const Memory empty = memory_of(model.empty());
  int n_untouched = 0, n_reset = 0;
  for (int n_good = 0; n_good < all.n_reads(); ++n_good) {
    Session to = model.filled(9, 2);
    const Memory before = memory_of(to);
    EXPECT_THROW(read(to, FadingSource(good, n_good, how)), Error) << n_good;
    const Memory after = memory_of(to);
    if (after == before) ++n_untouched;
    if (after == empty) ++n_reset;
  }
  EXPECT_EQ(n_untouched + n_reset, all.n_reads());
  EXPECT_GT(n_untouched, 5);
  EXPECT_GT(n_reset, 5);
}

}  // namespace moeflux::test
