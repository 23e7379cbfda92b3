// Version 3: what comes back, what is refused, and that no changed byte goes unnoticed.
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "runtime/snapshot_support.h"
#include "source/checksum.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::Bytes;
using test::expect_error;
using test::expect_fault;
using test::expect_refused;
using test::Fading;
using test::get_at;
using test::memory_of;
using test::put_at;
using test::SmallModel;
using test::written;
using enum SnapshotVersion;

constexpr std::size_t kHeader = 160;

// Takes a snapshot apart from the documented layout alone.
struct Parsed {
  std::vector<Bytes> sections;
  explicit Parsed(std::span<const std::byte> bytes) {
    EXPECT_EQ(get_at<std::uint32_t>(bytes, 0), 0x4D464C58u);
    EXPECT_EQ(get_at<std::uint32_t>(bytes, 4), 3u);
    EXPECT_EQ(get_at<std::uint64_t>(bytes, 8), bytes.size());
    EXPECT_EQ(get_at<std::uint64_t>(bytes, 152), checksum(bytes.first(152)));
    std::size_t offset = kHeader;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto n = get_at<std::uint64_t>(bytes, 120 + 8 * i);
      const auto section = bytes.subspan(offset, n);
      sections.emplace_back(section.begin(), section.end());
      EXPECT_EQ(get_at<std::uint64_t>(bytes, offset + n), checksum(section));
      offset += n + 8;
    }
    EXPECT_EQ(offset, bytes.size());
  }
};

// After a change of the header that is meant to be noticed by what it says.
void sign(Bytes& bytes) {
  put_at(bytes, 152, checksum(std::span(bytes).first(152)));
}

TEST(SnapshotV3, IsAsDocumented) {
  SmallModel model(test::hybrid_config(), KvType::BF16);
  const Session session = model.filled(21);
  const Bytes bytes = written(session, model.snapshot(), V3);
  const Parsed parsed(bytes);
  EXPECT_EQ(std::memcmp(bytes.data() + 16, "0123456789abcdef0123456789abcdef", 33), 0);
  const std::string layers =
      "delta 1 2 3 5 4, moe 4 2\ndelta 1 2 3 5 4, moe 4 2\nattention 2 40, moe 4 2\n";
  EXPECT_EQ(get_at<std::uint64_t>(bytes, 80), checksum(layers + layers));
  EXPECT_EQ(get_at<std::uint32_t>(bytes, 88), 2u);  // bf16
  EXPECT_EQ(get_at<std::uint32_t>(bytes, 92), 6u);
  EXPECT_EQ(get_at<std::int64_t>(bytes, 96), 21);
  EXPECT_EQ(get_at<std::int64_t>(bytes, 104), 3);
  EXPECT_EQ(get_at<std::int64_t>(bytes, 112), 16);
  const auto memory = memory_of(session);
  EXPECT_EQ(std::memcmp(parsed.sections[0].data(), memory.tokens.data(), 21 * 4), 0);
  EXPECT_EQ(parsed.sections[1], memory.kv);
  EXPECT_EQ(parsed.sections[2], memory.mtp);
  EXPECT_EQ(parsed.sections[3], memory.recurrent);
}

TEST(SnapshotV3, ShapeOfLatentAndDenseLayers) {
  ModelConfig config = test::mla_config();
  config.layers[0].ffn = DenseFfnSpec{.d_ff = 8};
  SmallModel model(config);
  const Bytes bytes = written(model.filled(2), model.snapshot(), V3);
  EXPECT_EQ(get_at<std::uint64_t>(bytes, 80),
            checksum("latent 33 6, dense\nlatent 33 6, moe 4 2\n"));
  EXPECT_EQ(get_at<std::int64_t>(bytes, 112), 0);
}

TEST(SnapshotV3, ComesBackWhole) {
  const test::TempDir dir;
  for (const ModelConfig& config : {test::hybrid_config(), test::mla_config()}) {
    for (const KvType type : kAllKvTypes) {
      for (const std::int64_t length : {0, 1, 17, 50}) {
        SmallModel model(config, type);
        const Session from = length == 0 ? model.empty() : model.filled(length);
        const auto want = memory_of(from);
        Session to = model.filled(9, 2);
        to.checkpoint();
        EXPECT_EQ(read_snapshot(to, model.snapshot(), written(from, model.snapshot(), V3)), V3);
        EXPECT_TRUE(memory_of(to) == want);
        Session other = model.empty(64);
        save_snapshot(dir.file("s"), from, model.snapshot());
        EXPECT_EQ(load_snapshot(dir.file("s"), other, model.snapshot()), V3);
        EXPECT_TRUE(memory_of(other) == want);
      }
    }
  }
}

// Larger than the pieces that pass through memory.
TEST(SnapshotV3, LongSessionsPassInPieces) {
  const test::TempDir dir;
  for (const SnapshotVersion version : {V2, V3}) {
    SmallModel model;
    const std::int64_t length = 5000;  // 80 values each: 1.6 MB of keys in a layer
    Session from = model.empty(length), to = model.empty(length);
    SmallModel::refill(from, length, 3);
    save_snapshot(dir.file("s"), from, model.snapshot(), version);
    EXPECT_EQ(std::filesystem::file_size(dir.file("s")),
              snapshot_bytes(from, model.snapshot(), version));
    EXPECT_EQ(std::filesystem::status(dir.file("s")).permissions(),  // it tells what was said
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    load_snapshot(dir.file("s"), to, model.snapshot());
    EXPECT_EQ(memory_of(to).kv, memory_of(from).kv);
    EXPECT_EQ(memory_of(to).recurrent, memory_of(from).recurrent);
    EXPECT_EQ(memory_of(to) == memory_of(from), version == V3);
  }
}

TEST(SnapshotV3, SizeFollowsTheLengthAndNotTheContext) {
  SmallModel model;
  Session small = model.empty(60), large = model.empty(5000);
  SmallModel::refill(small, 20, 1);
  SmallModel::refill(large, 20, 1);
  EXPECT_EQ(snapshot_bytes(small, model.snapshot()), snapshot_bytes(large, model.snapshot()));
  const std::uint64_t before = snapshot_bytes(small, model.snapshot());
  SmallModel::refill(small, 21, 1);
  EXPECT_EQ(snapshot_bytes(small, model.snapshot()) - before,
            4 + rows_image_bytes(kv_caches(small), 1) + rows_image_bytes(mtp_caches(small), 1));
}

TEST(SnapshotV3, EveryChangedByteIsFound) {
  SmallModel model(test::hybrid_config(), KvType::Q8);
  const Session from = model.filled(7);
  const Bytes good = written(from, model.snapshot(), V3);
  Session to = model.filled(9, 2);
  to.checkpoint();
  const auto before = memory_of(to);
  Bytes bad = good;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      bad[i] = good[i] ^ static_cast<std::byte>(flip);
      EXPECT_THROW(read_snapshot(to, model.snapshot(), bad), SnapshotError) << i;
    }
    bad[i] = good[i];
  }
  EXPECT_TRUE(memory_of(to) == before);
  read_snapshot(to, model.snapshot(), bad);
  EXPECT_TRUE(memory_of(to) == memory_of(from));
}

TEST(SnapshotV3, TruncationAtEveryByte) {
  SmallModel model(test::hybrid_config(), KvType::Q8);
  const Bytes good = written(model.filled(7), model.snapshot(), V3);
  Session to = model.filled(9, 2);
  const auto before = memory_of(to);
  for (std::size_t size = 0; size < good.size(); ++size) {
    expect_fault(size < kHeader ? SnapshotFault::BufferTooSmall : SnapshotFault::Truncated, {},
                 [&] { read_snapshot(to, model.snapshot(), std::span(good).first(size)); });
  }
  EXPECT_TRUE(memory_of(to) == before);
  Bytes longer = good;
  longer.resize(good.size() + 1);
  EXPECT_EQ(read_snapshot(to, model.snapshot(), longer), V3);  // what follows is ignored
}

TEST(SnapshotV3, AnotherModelIsRefusedByName) {
  SmallModel model, other;
  other.identity = "fedcba98765432100123456789abcdef";
  const Bytes bytes = written(model.filled(7), model.snapshot(), V3);
  Session to = other.filled(9);
  expect_refused(to, other.snapshot(), bytes, SnapshotFault::OtherModel,
                 {model.identity, other.identity});
}

TEST(SnapshotV3, OtherSizesAreRefused) {
  SmallModel model;
  const Bytes bytes = written(model.filled(7), model.snapshot(), V3);
  const auto refused = [&](ModelConfig config, std::initializer_list<std::string_view> parts) {
    SmallModel other(std::move(config));
    Session to = other.filled(9);
    expect_refused(to, other.snapshot(), bytes, SnapshotFault::ShapeMismatch, parts);
  };
  ModelConfig config = test::hybrid_config();
  config.layers.pop_back();
  refused(config, {"n_layers", "6", "5"});
  config = test::hybrid_config();
  std::swap(config.layers[1], config.layers[2]);
  refused(config, {"sizes of layers"});
  config = test::hybrid_config();
  std::get<MoeSpec>(config.layers[3].ffn).top_k = 1;
  refused(config, {"experts per token"});
}

// Any type becomes f32 without loss; nothing else does.
TEST(SnapshotV3, AnotherKvTypeIsTakenOnlyWithoutLoss) {
  for (const ModelConfig& config : {test::hybrid_config(), test::mla_config()}) {
    for (const KvType stored : kAllKvTypes) {
      SmallModel from(config, stored);
      const Session session = from.filled(20);
      const Bytes bytes = written(session, from.snapshot(), V3);
      for (const KvType wanted : kAllKvTypes) {
        SmallModel to(config, wanted);
        Session target = to.filled(9, 2);
        if (wanted == stored) continue;
        if (wanted != KvType::F32) {
          expect_refused(target, to.snapshot(), bytes, SnapshotFault::OtherKvType,
                         {kv_type_name(stored), kv_type_name(wanted)});
          continue;
        }
        read_snapshot(target, to.snapshot(), bytes);
        EXPECT_EQ(memory_of(target).tokens, memory_of(session).tokens);
        EXPECT_EQ(target.mtp_length(), session.mtp_length());
        // The same numbers as an f32 snapshot of the old versions has.
        EXPECT_EQ(written(target, to.snapshot(), V2), written(session, from.snapshot(), V2));
      }
    }
  }
}

TEST(SnapshotV3, LengthsThatDoNotFit) {
  SmallModel model;
  const Bytes good = written(model.filled(40), model.snapshot(), V3);
  Session small = model.empty(39);
  expect_refused(small, model.snapshot(), good, SnapshotFault::LengthOverContext, {"40", "39"});
  Session to = model.filled(9, 2);
  const auto refused = [&](std::size_t offset, std::int64_t value, SnapshotFault fault,
                           std::string_view part) {
    Bytes bad = good;
    put_at(bad, offset, value);
    sign(bad);
    expect_refused(to, model.snapshot(), bad, fault, {part});
  };
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  refused(96, -1, SnapshotFault::NegativeLength, "-1 positions");
  refused(96, kMost, SnapshotFault::LengthOverContext, "positions");
  refused(96, 39, SnapshotFault::Damaged, "tokens have 160 bytes, but 39 positions need 156");
  refused(104, -1, SnapshotFault::Damaged, "MTP");
  refused(104, kMost, SnapshotFault::Damaged, "MTP");
  refused(112, -1, SnapshotFault::Damaged, "MTP");
  refused(112, kMost, SnapshotFault::Damaged, "MTP");
  refused(112, 34, SnapshotFault::Damaged, "MTP head have");
  refused(8, 1, SnapshotFault::Damaged, "says that it has 1 bytes");
  for (std::size_t i = 0; i < 4; ++i) {
    refused(120 + 8 * i, kMost, SnapshotFault::Truncated, "truncated");
    refused(120 + 8 * i, -1, SnapshotFault::Truncated, "truncated");
    refused(120 + 8 * i, 0, SnapshotFault::Damaged, "sections end at");
  }
}

TEST(SnapshotV3, AHeaderThatIsSignedButAbsurd) {
  SmallModel model;
  const Bytes good = written(model.filled(7), model.snapshot(), V3);
  Session to = model.filled(9, 2);
  Bytes bad = good;
  put_at(bad, 88, std::uint32_t{4});  // a KV type that does not exist
  sign(bad);
  expect_refused(to, model.snapshot(), bad, SnapshotFault::Damaged, {"header"});
  bad = good;
  put_at(bad, 16, '\033');  // messages show the name
  sign(bad);
  expect_refused(to, model.snapshot(), bad, SnapshotFault::Damaged, {"header"});
  for (const TokenId token : {-2, test::kVocab}) {
    bad = good;
    put_at(bad, kHeader + 8, token);
    put_at(bad, kHeader + 7 * 4, checksum(std::span(bad).subspan(kHeader, 7 * 4)));
    expect_refused(to, model.snapshot(), bad, SnapshotFault::Damaged, {"token"});
  }
}

TEST(SnapshotV3, UnknownTokensStayUnknown) {
  SmallModel model;
  Session from = model.filled(7);
  from.adopt(std::vector<TokenId>(7, kUnknownToken));
  Session to = model.empty();
  read_snapshot(to, model.snapshot(), written(from, model.snapshot(), V3));
  EXPECT_EQ(memory_of(to).tokens, std::vector<TokenId>(7, kUnknownToken));
}

// Rows of the head that belong to no token of the session are drafts.
TEST(SnapshotV3, MtpRowsBeyondTheTokensAreLeftOut) {
  SmallModel model;
  Session from = model.filled(20);
  const auto tokens = memory_of(from).tokens;
  using Rows = std::pair<std::int64_t, std::int64_t>;
  const auto seen = [&](std::int64_t start, std::int64_t length) {
    from.adopt(tokens, start, length);
    Session to = model.empty();
    read_snapshot(to, model.snapshot(), written(from, model.snapshot(), V3));
    return Rows(to.mtp_start(), to.mtp_length());
  };
  EXPECT_EQ(seen(3, 15), Rows(3, 15));
  EXPECT_EQ(seen(3, 19), Rows(3, 16));
  EXPECT_EQ(seen(30, 0), Rows(0, 0));
}

TEST(SnapshotV3, ASessionWithoutTheHeadLeavesItsRowsAside) {
  SmallModel model, headless;
  headless.config.mtp.reset();
  const Session from = model.filled(20);
  Session to = headless.empty();
  read_snapshot(to, headless.snapshot(), written(from, model.snapshot(), V3));
  EXPECT_EQ(memory_of(to).kv, memory_of(from).kv);
  EXPECT_EQ(to.mtp_length(), 0);
  Session back = model.filled(9, 2);
  read_snapshot(back, model.snapshot(), written(to, headless.snapshot(), V3));
  EXPECT_EQ(back.length(), 20);
  EXPECT_EQ(back.mtp_length(), 0);
}

TEST(SnapshotV3, APoisonedSessionIsNotWrittenButCanBeReplaced) {
  const test::TempDir dir;
  SmallModel model;
  Session session = model.filled(7);
  const Bytes good = written(session, model.snapshot(), V3);
  const auto want = memory_of(session);
  session.begin(1);  // and never committed
  Bytes out(good.size());
  expect_error(Errc::BadInput, {"failed half-way"},
               [&] { write_snapshot(session, model.snapshot(), V3, out); });
  expect_error(Errc::BadInput, {"failed half-way"},
               [&] { save_snapshot(dir.file("s"), session, model.snapshot()); });
  EXPECT_FALSE(file_exists(dir.file("s")));
  read_snapshot(session, model.snapshot(), good);
  EXPECT_TRUE(memory_of(session) == want);
  EXPECT_NO_THROW(session.check(1));
}

TEST(SnapshotV3, AFileThatChangesWhileItIsReadLeavesNoHalfSession) {
  SmallModel model;
  const Bytes good = written(model.filled(7), model.snapshot(), V3);
  const auto read = [&](Session& session, const SnapshotSource& source) {
    read_v3(session, model.snapshot(), source);
  };
  test::expect_no_half_session(model, good, Fading::Fails, read);
  test::expect_no_half_session(model, good, Fading::Lies, read);
}

TEST(SnapshotV3, FilesThatCannotBeReadOrWritten) {
  const test::TempDir dir;
  SmallModel model;
  Session session = model.filled(7);
  const auto before = memory_of(session);
  expect_error(Errc::NotFound, {"absent"},
               [&] { load_snapshot(dir.file("absent"), session, model.snapshot()); });
  expect_error(Errc::Io, {"no/such/s.part"},
               [&] { save_snapshot(dir.file("no/such/s"), session, model.snapshot()); });
  test::write_file(dir.file("empty"), "");
  expect_fault(SnapshotFault::BufferTooSmall, {"/empty: ", "0 bytes"},
               [&] { load_snapshot(dir.file("empty"), session, model.snapshot()); });
  EXPECT_TRUE(memory_of(session) == before);
}

}  // namespace
}  // namespace moeflux
