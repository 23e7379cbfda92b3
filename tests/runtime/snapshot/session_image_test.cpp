#include "runtime/snapshot/session_image.h"

#include <gtest/gtest.h>

#include "runtime/snapshot_support.h"

namespace moeflux {
namespace {

using test::Bytes;
using test::memory_of;
using test::SmallModel;

TEST(SessionImage, SizesAreThoseOfTheStates) {
  SmallModel model;
  const Session session = model.empty();
  // Two full layers, keys and values of 2 x 40; four linear ones.
  EXPECT_EQ(rows_image_bytes(kv_caches(session), 7), 7u * 2 * 2 * 2 * 40 * 4);
  EXPECT_EQ(rows_image_bytes(mtp_caches(session), 7), 7u * 2 * 2 * 40 * 4);
  EXPECT_EQ(recurrent_image_bytes(session), 4u * (3 * 16 + 2 * 3 * 5) * 4);
  EXPECT_EQ(recurrent_image_bytes(session), Session::recurrent_bytes(model.config));

  SmallModel q8(test::mla_config(), KvType::Q8);
  const Session latent = q8.empty();
  EXPECT_EQ(rows_image_bytes(kv_caches(latent), 7), 7u * 2 * (39 + 2 * 2));
  EXPECT_EQ(rows_image_bytes(mtp_caches(latent), 7), 0u);
  EXPECT_EQ(recurrent_image_bytes(latent), 0u);
}

TEST(SessionImage, LayersFollowEachOther) {
  SmallModel model;
  const Session session = model.filled(20);
  Bytes all(rows_image_bytes(kv_caches(session), 4));
  export_rows(session.backend(), kv_caches(session), 3, 4, all);
  const Bytes::const_iterator at = all.begin();
  const std::size_t each = all.size() / 4;
  const auto caches = kv_caches(session);
  ASSERT_EQ(caches.size(), 4u);
  EXPECT_EQ(caches[0].buffer, std::get<AttentionState>(session.layer(2)).k.view().buffer);
  EXPECT_EQ(caches[3].buffer, std::get<AttentionState>(session.layer(5)).v.view().buffer);
  // Values are in rows: [head][position][d].
  const std::byte* value = caches[1].buffer->host() + caches[1].at(1, 3);
  EXPECT_TRUE(std::equal(value, value + 40 * 4, at + static_cast<std::ptrdiff_t>(each + 40 * 4)));
}

TEST(SessionImage, IsLosslessForEveryType) {
  for (const ModelConfig& config : {test::hybrid_config(), test::mla_config()}) {
    for (const KvType type : kAllKvTypes) {
      SmallModel model(config, type);
      const Session from = model.filled(37);
      const auto memory = memory_of(from);
      Session to = model.empty(80);  // another context
      import_rows(to.backend(), kv_caches(to), 0, 37, memory.kv);
      import_rows(to.backend(), mtp_caches(to), 0, from.mtp_length(), memory.mtp);
      import_recurrent(to, memory.recurrent);
      EXPECT_EQ(to.length(), 0);
      to.adopt(from.tokens(), from.mtp_start(), from.mtp_length());
      EXPECT_TRUE(memory_of(to) == memory) << kv_type_name(type);
    }
  }
}

TEST(SessionImage, RangesJoin) {
  SmallModel model(test::hybrid_config(), KvType::Q8);
  const Session from = model.filled(37);
  Session to = model.empty();
  for (std::int64_t first = 0; first < 37; first += 10) {
    const std::int64_t n = std::min<std::int64_t>(10, 37 - first);
    Bytes part(rows_image_bytes(kv_caches(from), n));
    export_rows(from.backend(), kv_caches(from), first, n, part);
    import_rows(to.backend(), kv_caches(to), first, n, part);
  }
  to.adopt(from.tokens());
  EXPECT_EQ(memory_of(to).kv, memory_of(from).kv);
}

}  // namespace
}  // namespace moeflux
