#include "text/tokenizer/bpe.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;

std::vector<VocabEntry> byte_vocab(const std::vector<std::string>& more = {}) {
  std::vector<VocabEntry> vocab;
  for (int b = 0; b < 256; ++b)
    vocab.push_back({bytes_to_visible(std::string(1, static_cast<char>(b))), b});
  for (const std::string& text : more) {
    vocab.push_back({bytes_to_visible(text), static_cast<TokenId>(vocab.size())});
  }
  return vocab;
}

Ids encode(const BpeModel& model, std::string_view piece) {
  BpeModel::Scratch scratch;
  Ids ids;
  model.encode(piece, scratch, ids);
  return ids;
}

BpeModel model_of(const std::vector<VocabEntry>& vocab, const std::vector<MergeRule>& merges,
                  BpeOptions options = {}) {
  BpeModel model(vocab, std::move(options), "test");
  model.add_merges(merges, "test");
  return model;
}

std::string error_of(const std::vector<VocabEntry>& vocab, const std::vector<MergeRule>& merges) {
  try {
    model_of(vocab, merges);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Bpe, MergesByRankAndThenFromTheLeft) {
  const auto vocab = byte_vocab({"ab", "bc", "abc", "aa"});
  EXPECT_EQ(encode(model_of(vocab, {{"a", "b"}, {"b", "c"}}), "abc"), (Ids{256, 'c'}));
  EXPECT_EQ(encode(model_of(vocab, {{"b", "c"}, {"a", "b"}}), "abc"), (Ids{'a', 257}));
  EXPECT_EQ(encode(model_of(vocab, {{"a", "b"}, {"b", "c"}, {"ab", "c"}}), "abc"), (Ids{258}));
  EXPECT_EQ(encode(model_of(vocab, {{"a", "a"}}), "aaaaa"), (Ids{259, 259, 'a'}));
  EXPECT_EQ(encode(model_of(vocab, {}), ""), (Ids{}));
}

TEST(Bpe, OfEqualMergesTheLastRankCounts) {
  const auto vocab = byte_vocab({"ab", "bc"});
  EXPECT_EQ(encode(model_of(vocab, {{"a", "b"}, {"b", "c"}, {"a", "b"}}), "abc"), (Ids{'a', 257}));
}

TEST(Bpe, IgnoringMergesTakesWholePieces) {
  const auto vocab = byte_vocab({"ab", "abc"});
  BpeOptions options;
  EXPECT_EQ(encode(model_of(vocab, {{"a", "b"}}, options), "abc"), (Ids{256, 'c'}));
  options.ignore_merges = true;
  EXPECT_EQ(encode(model_of(vocab, {{"a", "b"}}, options), "abc"), (Ids{257}));
  EXPECT_EQ(encode(model_of(vocab, {{"a", "b"}}, options), "abcd"), (Ids{256, 'c', 'd'}));
}

TEST(Bpe, DanglingMergesAreErrors) {
  EXPECT_EQ(
      error_of(byte_vocab(), {{"a", "b"}}),
      "test: merge 0 (\"a\" + \"b\") needs the token \"ab\", which the vocabulary does not have");
  EXPECT_NE(error_of(byte_vocab({"ab"}), {{"a", "b"}, {"xx", "b"}}).find("needs the token \"xx\""),
            std::string::npos);
  EXPECT_NE(error_of(byte_vocab({"ab"}), {{"a", ""}}).find("needs the token \"\""),
            std::string::npos);
  EXPECT_NE(error_of(byte_vocab({"a"}), {}).find("token \"a\" twice"), std::string::npos);
}

TEST(Bpe, MissingBytesVanishOrBecomeTheUnknownToken) {
  const std::vector<VocabEntry> vocab{{"a", 0}, {"b", 1}, {"<unk>", 2}};
  BpeOptions options;
  EXPECT_EQ(encode(model_of(vocab, {}, options), "axxb"), (Ids{0, 1}));
  options.unknown = "<unk>";
  EXPECT_EQ(encode(model_of(vocab, {}, options), "axxb"), (Ids{0, 2, 2, 1}));
  options.fuse_unknown = true;
  EXPECT_EQ(encode(model_of(vocab, {}, options), "axxb"), (Ids{0, 2, 1}));
  options.unknown = "<none>";
  EXPECT_EQ(encode(model_of(vocab, {}, options), "ab"), (Ids{0, 1}));
  EXPECT_THROW(encode(model_of(vocab, {}, options), "axb"), Error);
}

TEST(Bpe, CharactersAndByteFallback) {
  std::vector<VocabEntry> vocab{{"\u00E9", 0},
                                {"a", 1},
                                {"\u00E9"
                                 "a",
                                 2},
                                {"<unk>", 3}};
  BpeOptions options;
  options.byte_level = false;
  options.unknown = "<unk>";
  EXPECT_EQ(encode(model_of(vocab, {{"\u00E9", "a"}}, options),
                   "\u00E9"
                   "a\u4E2D"
                   "a"),
            (Ids{2, 3, 1}));
  options.byte_fallback = true;
  for (const char* byte : {"<0xE4>", "<0xB8>", "<0xAD>"})
    vocab.push_back({byte, static_cast<TokenId>(vocab.size())});
  EXPECT_EQ(encode(model_of(vocab, {}, options), "a\u4E2D"), (Ids{1, 4, 5, 6}));
  EXPECT_EQ(encode(model_of(vocab, {}, options), "a\u4E2E"), (Ids{1, 3}));  // <0xAE> is missing
}

TEST(Bpe, MergingByIdIsWhatTiktokenDoes) {
  const auto vocab = byte_vocab({"bc", "ab", "abc"});
  BpeModel model(vocab, {}, "test");
  model.add_merges_by_id();
  EXPECT_EQ(encode(model, "abc"), (Ids{258}));  // bc first, then a + bc
  EXPECT_EQ(encode(model, "abbc"), (Ids{257, 256}));
  EXPECT_EQ(encode(model, "ab"), (Ids{257}));
}

// Short pieces are merged by scanning, long ones with a queue: both must agree with the definition.
TEST(Bpe, LongPiecesMergeLikeShortOnes) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> tokens;
    std::vector<MergeRule> merges;
    std::vector<std::string> known{"a", "b", "c"};
    while (merges.size() < 12) {
      const std::string left = known[random() % known.size()],
                        right = known[random() % known.size()];
      if (std::find(known.begin(), known.end(), left + right) != known.end()) continue;
      known.push_back(left + right);
      tokens.push_back(left + right);
      merges.push_back({left, right});
    }
    const BpeModel model = model_of(byte_vocab(tokens), merges);
    std::vector<std::string> symbols;
    std::string piece;
    for (std::size_t n = random() % 150; n > 0; --n) piece += "abc"[random() % 3];
    for (const char c : piece) symbols.emplace_back(1, c);
    for (bool merged = true; merged;) {  // the definition: the best merge anywhere, again and again
      merged = false;
      for (const MergeRule& merge : merges) {
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
          if (symbols[i] != merge.left || symbols[i + 1] != merge.right) continue;
          symbols[i] += symbols[i + 1];
          symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
          break;
        }
        if (merged) break;
      }
    }
    Ids expected;
    for (const std::string& symbol : symbols) expected.push_back(*model.find(symbol));
    ASSERT_EQ(encode(model, piece), expected) << piece;
  }
}

TEST(Bpe, AMegabyteWithoutABorderIsFast) {
  const BpeModel model = model_of(byte_vocab({"ab", "abab", "abababab"}),
                                  {{"a", "b"}, {"ab", "ab"}, {"abab", "abab"}});
  std::string piece;
  while (piece.size() < (1u << 20)) piece += "ab";
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = encode(model, piece);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(ids.size(), piece.size() / 8);
  EXPECT_EQ(ids.front(), 258);
}

}  // namespace
}  // namespace moeflux
