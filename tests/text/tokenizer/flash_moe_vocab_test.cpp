#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer/tiny_tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
using test::le;
using test::TempDir;

std::string text(const std::string& s) {
  return test::le_text(s);
}

// Tokens a 0, b 1, ab 3, U+0120 (a space) 4; the control token 9 and the visible token 10.
std::string small_bpet() {
  return "BPET" + le(1, 4) + le(4, 4) + le(1, 4) + le(2, 4) +  //
         le(0, 4) + text("a") + le(1, 4) + text("b") + le(3, 4) + text("ab") + le(4, 4) +
         text("\u0120") +         //
         text("a") + text("b") +  //
         le(9, 4) + text("<|im_end|>") + le(10, 4) + text("<think>");
}

std::string small_vocab_bin() {
  return le(4, 4) + le(3, 4) + text("a") + text("\xC3") + text("") + text("<|end|>");
}

template <class Load>
std::string error_of(Load load, const std::string& content) {
  const TempDir dir;
  const std::string path = dir.write("file.bin", content);
  try {
    load(path);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind(path + ": ", 0), 0u) << error.what();
    return std::string(error.what()).substr(path.size());
  }
  return "no error";
}

Tokenizer load_bpet(const std::string& content) {
  const TempDir dir;
  return Tokenizer::from_bpet_file(dir.write("tokenizer.bin", content));
}

Tokenizer load_vocab(const std::string& content) {
  const TempDir dir;
  return Tokenizer::from_vocab_bin_file(dir.write("vocab.bin", content));
}

TEST(FlashMoeVocab, ReadsTokenizerBin) {
  const Tokenizer tokenizer = load_bpet(small_bpet());
  EXPECT_EQ(tokenizer.encode_markup("ab<|im_end|> a<think>"), (Ids{3, 9, 4, 0, 10}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 9, 4, 0, 10}, true), "ab a<think>");
  EXPECT_EQ(tokenizer.n_ids(), 11u);
  EXPECT_EQ(tokenizer.token_bytes(4), " ");
  EXPECT_TRUE(tokenizer.is_special(9));
  EXPECT_FALSE(tokenizer.is_special(10));
}

TEST(FlashMoeVocab, ReadsVocabBinForDecodingOnly) {
  const Tokenizer tokenizer = load_vocab(small_vocab_bin());
  EXPECT_EQ(tokenizer.decode(Ids{0, 1, 2, 3, 0}), "a\uFFFD<|end|>a");
  EXPECT_EQ(tokenizer.decode(Ids{0, 3}, true), "a");
  EXPECT_EQ(tokenizer.token_bytes(1), "\xC3");
  EXPECT_FALSE(tokenizer.can_encode());
  try {
    tokenizer.encode_markup("a");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos);
  }
}

TEST(FlashMoeVocab, ReadsWhatAJsonTokenizerHas) {
  Json json = test::tiny_json({{"t", "h"}, {" ", "th"}});
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"] = {test::tiny_added("<|im_end|>", 300)};
  const Tokenizer original = test::load_json(json);
  const Tokenizer copy = load_bpet(test::bpet_of(json));
  const std::string sample = "the  th\u00E9 e\u0301<|im_end|>1234\n";
  EXPECT_EQ(copy.decode(copy.encode_markup(sample)), "the  th\u00E9 \u00E9<|im_end|>1234\n");
  EXPECT_EQ(copy.encode_markup("a the"), original.encode_markup("a the"));
  const Tokenizer shown = load_vocab(test::vocab_bin_of(original));
  for (TokenId id = 0; id < 301; ++id) EXPECT_EQ(shown.token_bytes(id), original.token_bytes(id));
}

TEST(FlashMoeVocab, TruncatedAnywhereIsAnError) {
  const std::string bpet = small_bpet();
  for (std::size_t n = 0; n < bpet.size(); ++n) {
    EXPECT_NE(error_of(Tokenizer::from_bpet_file, bpet.substr(0, n)).find("truncated"),
              std::string::npos)
        << n;
  }
  const std::string vocab = small_vocab_bin();
  for (std::size_t n = 0; n < vocab.size(); ++n) {
    EXPECT_NE(error_of(Tokenizer::from_vocab_bin_file, vocab.substr(0, n)).find("truncated"),
              std::string::npos)
        << n;
  }
}

TEST(FlashMoeVocab, DamagedFilesAreErrors) {
  const auto bpet = [](const std::string& content) {
    return error_of(Tokenizer::from_bpet_file, content);
  };
  EXPECT_NE(bpet("BPEX" + small_bpet().substr(4)).find("does not begin with BPET"),
            std::string::npos);
  EXPECT_NE(bpet("BPET" + le(2, 4) + small_bpet().substr(8)).find("version 2"), std::string::npos);
  EXPECT_NE(bpet(small_bpet() + "x").find("1 bytes after its end"), std::string::npos);
  EXPECT_NE(bpet("BPET" + le(1, 4) + le(0xFFFFFFFF, 4) + le(0, 4) + le(0, 4)).find("truncated"),
            std::string::npos);
  const std::string head = "BPET" + le(1, 4) + le(1, 4) + le(0, 4) + le(0, 4);
  EXPECT_NE(bpet(head + le(0x80000000, 4) + text("a")).find("2147483648"), std::string::npos);
  EXPECT_NE(bpet(head + le(0, 4) + text("\xFF")).find("not UTF-8"), std::string::npos);
  const std::string two = "BPET" + le(1, 4) + le(2, 4) + le(0, 4) + le(0, 4);
  EXPECT_NE(bpet(two + le(0, 4) + text("a") + le(0, 4) + text("b")).find("same id 0"),
            std::string::npos);
  EXPECT_NE(bpet(two + le(0, 4) + text("a") + le(1, 4) + text("a")).find("twice"),
            std::string::npos);
  EXPECT_NE(bpet("BPET" + le(1, 4) + le(0, 4) + le(0, 4) + le(0, 4)).find("empty"),
            std::string::npos);

  const auto vocab = [](const std::string& content) {
    return error_of(Tokenizer::from_vocab_bin_file, content);
  };
  EXPECT_NE(vocab(le(0, 4) + le(0, 4)).find("0 entries"), std::string::npos);
  EXPECT_NE(vocab(le(2, 4) + le(9, 4) + text("a") + text("b")).find("largest id of 9"),
            std::string::npos);
  EXPECT_NE(vocab(le(0xFFFFFFFF, 4) + le(0xFFFFFFFE, 4)).find("no vocab.bin"), std::string::npos);
  EXPECT_NE(vocab(small_vocab_bin() + "y").find("after its end"), std::string::npos);
}

}  // namespace
}  // namespace moeflux
