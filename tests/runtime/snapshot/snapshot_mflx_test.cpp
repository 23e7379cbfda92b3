// MFLX versions 1 and 2, against files that the test itself builds and takes apart from the
// documented layout.
#include <gtest/gtest.h>

#include "base/file.h"
#include "runtime/snapshot_support.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::Bytes;
using test::expect_fault;
using test::expect_refused;
using test::memory_of;
using test::put_at;
using test::SmallModel;
using test::written;
using enum SnapshotVersion;

constexpr std::uint32_t kHybridHeader[] = {0x4D464C58,    2, 6, 3, 2, 40, 3 * 16 * 4,
                                           2 * 5 * 3 * 4, 0, 0};
constexpr std::uint32_t kMlaHeader[] = {0x4D464C58, 2, 2, 1, 6, 10, 0, 0, 33, 6};

// Builds a file; every number in it is another one.
struct Builder {
  Bytes bytes;
  float next = 0;

  template <class T>
  void add(T value) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof value);
    put_at(bytes, at, value);
  }
  void floats(int n) {
    for (int i = 0; i < n; ++i) add(next += 0.25f);
  }
};

Bytes hybrid_file(std::uint32_t version, std::int32_t length) {
  Builder file;
  for (int i = 0; i < (version == 1 ? 8 : 10); ++i) file.add(i == 1 ? version : kHybridHeader[i]);
  for (int layer = 0; layer < 6; ++layer) {
    if (layer % 3 == 2) {
      file.add(length);
      file.floats(length * 2 * 40);  // keys
      file.floats(length * 2 * 40);  // values
    } else {
      file.floats(3 * 16);     // convolution
      file.floats(2 * 5 * 3);  // state: [head][value][key]
    }
  }
  return file.bytes;
}

Bytes mla_file(std::int32_t length) {
  Builder file;
  for (const std::uint32_t field : kMlaHeader) file.add(field);
  for (int layer = 0; layer < 2; ++layer) {
    file.add(length);
    file.floats(length * 33);
    file.floats(length * 6);
  }
  return file.bytes;
}

const float* floats(const Buffer& buffer) {
  return static_cast<const float*>(static_cast<const void*>(buffer.host()));
}

float value_at(const KvView& view, int head, std::int64_t position, int c) {
  const float* at = floats(*view.buffer) + view.at(head, position) / 4;
  return view.shape.layout == KvLayout::Tiles ? at[c * kKvLanes + position % kKvLanes] : at[c];
}

TEST(SnapshotMflx, AHybridFileGivesTheRightStates) {
  for (const std::uint32_t version : {1u, 2u}) {
    SmallModel model;
    Session session = model.filled(9);
    const std::int32_t length = 21;
    const Bytes file = hybrid_file(version, length);
    EXPECT_EQ(static_cast<std::uint32_t>(read_snapshot(session, model.snapshot(), file)), version);
    ASSERT_EQ(session.length(), length);
    for (const TokenId token : session.tokens()) EXPECT_EQ(token, kUnknownToken);
    EXPECT_EQ(session.mtp_length(), 0);

    float next = 0;
    for (int layer = 0; layer < 6; ++layer) {
      if (layer % 3 == 2) {
        const auto& state = std::get<AttentionState>(session.layer(layer));
        for (const KvView& view : {state.k.view(), state.v.view()}) {
          for (int position = 0; position < length; ++position) {
            for (int head = 0; head < 2; ++head) {
              for (int c = 0; c < 40; ++c)
                ASSERT_EQ(value_at(view, head, position, c), next += 0.25f);
            }
          }
        }
        continue;
      }
      const auto& state = std::get<DeltaState>(session.layer(layer));
      for (int i = 0; i < 3 * 16; ++i) ASSERT_EQ(floats(*state.conv)[i], next += 0.25f);
      for (int head = 0; head < 2; ++head) {
        for (int value = 0; value < 5; ++value) {
          for (int key = 0; key < 3; ++key)  // ours is [head][key][value]
            ASSERT_EQ(floats(*state.s)[(head * 3 + key) * 5 + value], next += 0.25f);
        }
      }
    }
    EXPECT_EQ(written(session, model.snapshot(), static_cast<SnapshotVersion>(version)), file);
  }
}

TEST(SnapshotMflx, AnMlaFileGivesTheRightStates) {
  SmallModel model(test::mla_config());
  Session session = model.filled(9);
  const std::int32_t length = 21;
  const Bytes file = mla_file(length);
  EXPECT_EQ(read_snapshot(session, model.snapshot(), file), V2);
  ASSERT_EQ(session.length(), length);
  float next = 0;
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = std::get<LatentState>(session.layer(layer)).kv.view();
    for (int position = 0; position < length; ++position) {
      for (int c = 0; c < 33; ++c) ASSERT_EQ(value_at(view, 0, position, c), next += 0.25f);
    }
    for (int position = 0; position < length; ++position) {
      for (int c = 33; c < 39; ++c) ASSERT_EQ(value_at(view, 0, position, c), next += 0.25f);
    }
  }
  EXPECT_EQ(written(session, model.snapshot(), V2), file);
}

TEST(SnapshotMflx, SizesOfTheReleasedModels) {
  const auto bytes = [](int n_layers, int interval, const MixerSpec& full,
                        const MixerSpec& linear) {
    std::vector<MixerSpec> mixers;
    for (int i = 1; i <= n_layers; ++i) mixers.push_back(i % interval == 0 ? full : linear);
    SmallModel model(test::config_of(mixers));
    MemoryBudget budget(std::uint64_t{1} << 32);
    Session session(model.config, {100}, test::host_backend(), budget);
    session.adopt(std::vector<TokenId>(10));
    return snapshot_bytes(session, model.snapshot(), V2);
  };
  const AttentionSpec attention{
      .n_heads = 32, .n_kv_heads = 2, .d_head = 256, .rope = {}, .scale = 1};
  GatedDeltaSpec delta{
      .n_key_heads = 16, .n_value_heads = 64, .d_key = 128, .d_value = 128, .conv_width = 4};
  EXPECT_EQ(bytes(60, 4, attention, delta), 195379300u + 61440 * 10);
  delta.n_value_heads = 32;
  EXPECT_EQ(bytes(40, 4, attention, delta), 65863760u + 40960 * 10);
  const MlaSpec mla{.n_heads = 128,
                    .q_rank = 1536,
                    .kv_rank = 512,
                    .d_nope = 128,
                    .d_rope = 64,
                    .d_value = 128,
                    .rope = {},
                    .scale = 1,
                    .latent_norm_eps = 1e-6f};
  EXPECT_EQ(bytes(61, 1, mla, mla), 284u + 140544 * 10);
}

// 16-bit types come back exactly; q8 within a rounding.
TEST(SnapshotMflx, OtherKvTypesAreDecodedAndEncoded) {
  for (const ModelConfig& config : {test::hybrid_config(), test::mla_config()}) {
    for (const KvType type : {KvType::F16, KvType::BF16, KvType::Q8}) {
      SmallModel model(config, type), exact(config);
      const Session from = model.filled(37);
      const Bytes file = written(from, model.snapshot(), V2);
      Session to = model.empty(), plain = exact.empty();
      read_snapshot(to, model.snapshot(), file);
      read_snapshot(plain, exact.snapshot(), file);
      EXPECT_EQ(written(plain, exact.snapshot(), V2), file);
      EXPECT_EQ(memory_of(to).recurrent, memory_of(from).recurrent);
      if (type != KvType::Q8) {
        EXPECT_EQ(memory_of(to).kv, memory_of(from).kv);
        continue;
      }
      const Bytes again = written(to, model.snapshot(), V2);
      for (std::size_t i = 40; i + 4 <= file.size(); i += 4)
        ASSERT_NEAR(test::get_at<float>(again, i), test::get_at<float>(file, i), 3.0 / 126);
    }
  }
}

TEST(SnapshotMflx, AnEmptySessionComesBackEmpty) {
  SmallModel model;
  const Session from = model.empty();
  Session to = model.filled(9);
  Bytes file = written(from, model.snapshot(), V1);
  EXPECT_EQ(file, [] {
    Bytes zeros = hybrid_file(1, 0);
    std::fill(zeros.begin() + 32, zeros.end(), std::byte{0});
    return zeros;
  }());
  read_snapshot(to, model.snapshot(), file);
  EXPECT_TRUE(memory_of(to) == memory_of(model.empty()));
  // Whatever such a file says of the recurrent state: nothing came before.
  read_snapshot(to, model.snapshot(), hybrid_file(1, 0));
  EXPECT_TRUE(memory_of(to) == memory_of(model.empty()));
}

TEST(SnapshotMflx, CheckpointsAreForgotten) {
  SmallModel model;
  Session session = model.filled(9);
  session.checkpoint();
  read_snapshot(session, model.snapshot(), hybrid_file(2, 21));
  EXPECT_TRUE(session.checkpoints().empty());
  EXPECT_EQ(session.nearest_rewind(20), 0);
}

TEST(SnapshotMflx, MagicAndVersion) {
  SmallModel model;
  Session session = model.filled(9);
  session.checkpoint();
  const Bytes good = hybrid_file(2, 3);
  Bytes bad = good;
  put_at(bad, 0, 0x584C464Du);
  expect_refused(session, model.snapshot(), bad, SnapshotFault::BadMagic, {"no snapshot"});
  for (const std::uint32_t version : {0u, 4u, 0xFFFFFFFFu}) {
    bad = good;
    put_at(bad, 4, version);
    expect_refused(session, model.snapshot(), bad, SnapshotFault::BadVersion,
                   {std::to_string(version), "1 to 3"});
  }
}

TEST(SnapshotMflx, EveryFieldMustBeThatOfTheModel) {
  const char* const names[] = {"num_layers",   "full_attn_interval", "num_kv_heads",
                               "head_dim",     "linear_conv_bytes",  "linear_ssm_bytes",
                               "kv_lora_rank", "qk_rope_head_dim"};
  for (const bool mla : {false, true}) {
    SmallModel model(mla ? test::mla_config() : test::hybrid_config());
    Session session = model.filled(9);
    const Bytes good = mla ? mla_file(3) : hybrid_file(2, 3);
    for (std::size_t i = 0; i < 8; ++i) {
      Bytes bad = good;
      const std::uint32_t want = (mla ? kMlaHeader : kHybridHeader)[i + 2];
      put_at(bad, 8 + 4 * i, want + 7);
      expect_refused(session, model.snapshot(), bad, SnapshotFault::ShapeMismatch,
                     {names[i], std::to_string(want + 7), std::to_string(want)});
    }
  }
  SmallModel mla(test::mla_config());
  Session session = mla.filled(9);
  expect_refused(session, mla.snapshot(), hybrid_file(2, 3), SnapshotFault::ShapeMismatch);
  expect_refused(session, mla.snapshot(), hybrid_file(1, 3), SnapshotFault::Unsupported,
                 {"version 1", "latent"});
}

TEST(SnapshotMflx, Lengths) {
  SmallModel model;
  Session session = model.filled(9);
  const Bytes good = hybrid_file(2, 3);
  const std::size_t linear = (3 * 16 + 30) * 4, full = 4 + 3 * 2 * 2 * 40 * 4;
  const std::size_t first = 40 + 2 * linear, second = first + full + 2 * linear;
  ASSERT_EQ(test::get_at<std::int32_t>(good, second), 3);
  for (const std::size_t at : {first, second}) {
    const std::string layer = at == first ? "layer 2" : "layer 5";
    for (const std::int32_t length : {-1, std::numeric_limits<std::int32_t>::min()}) {
      Bytes bad = good;
      put_at(bad, at, length);
      expect_refused(session, model.snapshot(), bad, SnapshotFault::NegativeLength,
                     {layer, std::to_string(length)});
    }
    for (const std::int32_t length : {51, std::numeric_limits<std::int32_t>::max()}) {
      Bytes bad = good;
      put_at(bad, at, length);
      expect_refused(session, model.snapshot(), bad, SnapshotFault::LengthOverContext,
                     {layer, std::to_string(length), "50"});
    }
  }
  Bytes bad = good;
  put_at(bad, second, 2);
  expect_refused(session, model.snapshot(), bad, SnapshotFault::LengthsDiffer, {"layer 5", "2"});
  EXPECT_EQ(read_snapshot(session, model.snapshot(), hybrid_file(2, 50)), V2);
  EXPECT_EQ(session.length(), 50);
}

TEST(SnapshotMflx, TruncationAtEveryByte) {
  for (const bool mla : {false, true}) {
    SmallModel model(mla ? test::mla_config() : test::hybrid_config());
    Session session = model.filled(9);
    const auto before = memory_of(session);
    const Bytes good = mla ? mla_file(3) : hybrid_file(2, 3);
    for (std::size_t size = 0; size < good.size(); ++size) {
      const auto fault = size < 40 ? SnapshotFault::BufferTooSmall : SnapshotFault::Truncated;
      expect_fault(fault, {size < 40 ? "header" : "layer"},
                   [&] { read_snapshot(session, model.snapshot(), std::span(good).first(size)); });
    }
    EXPECT_TRUE(memory_of(session) == before);
    Bytes longer = good;
    longer.resize(good.size() + 100);
    EXPECT_EQ(read_snapshot(session, model.snapshot(), longer), V2);  // what follows is ignored
  }
}

TEST(SnapshotMflx, TruncationIsToldByLayer) {
  SmallModel model;
  Session session = model.filled(9);
  const Bytes good = hybrid_file(1, 3);
  const std::size_t linear = (3 * 16 + 30) * 4;
  const auto refused = [&](std::size_t size, std::initializer_list<std::string_view> parts) {
    expect_refused(session, model.snapshot(), std::span(good).first(size), SnapshotFault::Truncated,
                   parts);
  };
  refused(32, {"layer 0", "312", "of 0 left"});
  refused(32 + linear + 5, {"layer 1", "312", "of 5 left"});
  refused(32 + 2 * linear + 3, {"layer 2", "4 bytes", "of 3 left"});
  refused(32 + 2 * linear + 104, {"layer 2", "1920", "of 100 left"});
  refused(good.size() - 1, {"layer 5", "1920", "of 1919 left"});
}

TEST(SnapshotMflx, ModelsThatTheHeaderCannotDescribe) {
  const auto refused = [](const std::vector<MixerSpec>& mixers, SnapshotVersion version,
                          std::initializer_list<std::string_view> parts) {
    SmallModel model(test::config_of(mixers));
    const Session session = model.filled(3);
    expect_fault(SnapshotFault::Unsupported, parts,
                 [&] { snapshot_bytes(session, model.snapshot(), version); });
    Bytes out(1 << 16);
    expect_fault(SnapshotFault::Unsupported, parts,
                 [&] { write_snapshot(session, model.snapshot(), version, out); });
    EXPECT_EQ(out, Bytes(1 << 16));
    EXPECT_NO_THROW(snapshot_bytes(session, model.snapshot(), V3));
  };
  const GatedDeltaSpec delta = test::delta_spec();
  const AttentionSpec full = test::attention_spec();
  AttentionSpec wide = full;
  wide.d_head = 48;
  GatedDeltaSpec tall = delta;
  tall.d_key = 4;
  refused({delta, full, full}, V2, {"layer 2", "version 3"});
  refused({delta, full, delta, delta}, V2, {"layer 3"});
  refused({full, delta}, V1, {"layer 1"});
  refused({full, wide}, V2, {"layer"});
  refused({delta, tall, full}, V2, {"layer"});
  refused({full, test::mla_spec()}, V2, {"layer"});
  refused({delta, delta}, V2, {"without full attention"});
  refused({test::mla_spec()}, V1, {"version 1", "latent"});
}

TEST(SnapshotMflx, ATooSmallBufferIsRefused) {
  SmallModel model;
  const Session session = model.filled(3);
  for (const SnapshotVersion version : {V1, V2, V3}) {
    const std::uint64_t need = snapshot_bytes(session, model.snapshot(), version);
    Bytes out(need - 1);
    expect_fault(SnapshotFault::BufferTooSmall, {std::to_string(need), std::to_string(need - 1)},
                 [&] { write_snapshot(session, model.snapshot(), version, out); });
    EXPECT_EQ(out, Bytes(need - 1));
  }
}

TEST(SnapshotMflx, AFileThatFailsWhileItIsReadLeavesNoHalfSession) {
  SmallModel model;
  test::expect_no_half_session(model, hybrid_file(2, 7), test::Fading::Fails,
                               [&](Session& session, const SnapshotSource& source) {
                                 read_mflx(session, model.config, V2, source);
                               });
}

TEST(SnapshotMflx, FilesAreTheSameBytes) {
  const test::TempDir dir;
  SmallModel model;
  const Session from = model.filled(9);
  save_snapshot(dir.file("a"), from, model.snapshot(), V1);
  const std::string text = read_text_file(dir.file("a"));
  const Bytes bytes = written(from, model.snapshot(), V1);
  ASSERT_EQ(text.size(), bytes.size());
  EXPECT_EQ(std::memcmp(text.data(), bytes.data(), bytes.size()), 0);
  Session to = model.empty();
  EXPECT_EQ(load_snapshot(dir.file("a"), to, model.snapshot()), V1);
  EXPECT_EQ(memory_of(to).kv, memory_of(from).kv);
  test::write_file(dir.file("a"), std::string_view(text).substr(0, text.size() - 1));
  const auto before = memory_of(to);
  expect_fault(SnapshotFault::Truncated, {"/a: ", "layer 5"},
               [&] { load_snapshot(dir.file("a"), to, model.snapshot()); });
  EXPECT_TRUE(memory_of(to) == before);
}

}  // namespace
}  // namespace moeflux
