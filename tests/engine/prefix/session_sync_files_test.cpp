// Files that are damaged, of something else, or missing: a session is right or starts over.
#include <filesystem>
#include <fstream>

#include "engine/decoder.h"
#include "engine/prefix/session_sync_fixture.h"
#include "runtime/snapshot/session_image.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;
using test::expect_synced;
using test::Positions;
using test::Process;
using SessionSyncFilesTest = test::SessionSyncTest;
using test::small_options;

// Whatever is wrong with a file: it goes, and the next best is taken.
TEST_F(SessionSyncFilesTest, DamagedFilesAreDeletedAndNeverLoaded) {
  Process process("models/demo", directory_.path());
  const std::vector<TokenId> tokens = process.tokens(60);
  const std::vector<float> expected = process.fresh_logits(tokens);
  const auto remember = [&] {
    Session session = process.engine.new_session();
    process.sync.prefill(session, tokens, Positions{20, 50});
    ASSERT_EQ(files(".kv").size(), 3u);
    ASSERT_EQ(files(".state").size(), 2u);
  };
  test::Random random(5);
  for (int round = 0; round < 40; ++round) {
    remember();
    const std::vector<std::string> paths = files();
    const auto path = paths[static_cast<std::size_t>(random.integer(0, 4))];
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path));
    if (round % 4 == 0) {
      std::filesystem::resize_file(path, static_cast<std::uintmax_t>(random.integer(0, size - 1)));
    } else {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(round % 4 == 1 ? random.integer(0, 200) : random.integer(0, size - 1));
      const auto at = file.tellp();
      file.seekg(at);
      const char byte = static_cast<char>(file.get());
      file.seekp(at);
      file.put(static_cast<char>(byte ^ (1 << random.integer(0, 7))));
    }
    const bool first_block = path.find("/16-") != std::string::npos;
    const bool first_state = path.find("/20-") != std::string::npos;
    Session session = process.engine.new_session();
    const SyncResult result = process.sync.sync(session, tokens);
    EXPECT_EQ(result.n_tokens, first_block ? 0 : first_state ? 50 : 20) << path;
    EXPECT_EQ(std::filesystem::exists(path), first_state) << path;
    expect_same_bits(process.logits(session, tokens), expected);
    std::filesystem::remove(path);
  }
  EXPECT_GT(process.store.stats().files_damaged, 10u);
  EXPECT_EQ(process.store.warning(), "");
}

// What a state is of is compared, not only its name.
TEST_F(SessionSyncFilesTest, AnotherSequenceUnderTheSameNameIsNotLoaded) {
  Process process("models/demo", directory_.path());
  const std::vector<TokenId> a = process.tokens(40, 1), b = process.tokens(40, 2);
  process.remember_at(a, {10});
  const std::string of_a = files(".state").at(0);
  process.remember_at(b, {10});
  for (const std::string& path : files(".state")) {
    if (path != of_a)
      std::filesystem::copy_file(of_a, path, std::filesystem::copy_options::overwrite_existing);
  }
  Session session = process.engine.new_session();
  expect_synced(process.sync.sync(session, b), 0, PrefixOrigin::Nothing);
  expect_synced(process.sync.sync(session, a), 10, PrefixOrigin::Store);
}

// What the MTP head has seen comes back with the rest, where the store has it.
TEST_F(SessionSyncFilesTest, RowsOfTheMtpHead) {
  EngineOptions options = small_options();
  options.max_drafts = 2;
  Process process("models/demo", directory_.path(), options);
  const std::vector<TokenId> tokens = process.tokens(60);
  const auto rows = [](const Session& session, std::int64_t n) {
    std::vector<std::byte> bytes(rows_image_bytes(mtp_caches(session), n));
    export_rows(session.backend(), mtp_caches(session), 0, n, bytes);
    return bytes;
  };
  Session first = process.engine.new_session();
  {
    Decoder decoder(process.engine, first, {.mtp = true, .depth = 1});
    decoder.prefill(std::span(tokens).first(49));
    decoder.advance(tokens[49]);  // the head reads when it is asked for a draft
  }
  ASSERT_EQ(first.length(), 50);
  ASSERT_EQ(first.mtp_start(), 0);
  ASSERT_EQ(first.mtp_length(), 49);
  EXPECT_TRUE(process.sync.remember(first));
  EXPECT_EQ(files(".mtp").size(), 4u);  // of three blocks and the state

  Session second = process.engine.new_session();
  expect_synced(process.sync.sync(second, tokens), 50, PrefixOrigin::Store);
  EXPECT_EQ(second.mtp_start(), 0);
  ASSERT_EQ(second.mtp_length(), 49);
  EXPECT_EQ(rows(second, 49), rows(first, 49));
  expect_same_bits(process.logits(second, tokens), process.fresh_logits(tokens));

  // Damaged or missing, they are fewer, and the rest is as it was.
  for (const std::string& path : files(".mtp")) {
    if (path.find("/48-") != std::string::npos) std::filesystem::resize_file(path, 100);
  }
  Session third = process.engine.new_session();
  expect_synced(process.sync.sync(third, tokens), 50, PrefixOrigin::Store);
  ASSERT_EQ(third.mtp_length(), 31);
  EXPECT_EQ(rows(third, 31), rows(first, 31));
  for (const std::string& path : files(".mtp")) std::filesystem::remove(path);
  Session fourth = process.engine.new_session();
  expect_synced(process.sync.sync(fourth, tokens), 50, PrefixOrigin::Store);
  EXPECT_EQ(fourth.mtp_length(), 0);
  expect_same_bits(process.logits(fourth, tokens), process.fresh_logits(tokens));
}

}  // namespace
}  // namespace moeflux
