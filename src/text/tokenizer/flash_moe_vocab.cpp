#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

constexpr std::string_view kMagic = "BPET";
constexpr std::uint32_t kVersion = 1;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), bytes_(read_text_file(path)) {}

  std::uint32_t u32(std::string_view what) { return integer(4, what); }
  std::string_view take(std::size_t n, std::string_view what) {
    if (n > bytes_.size() - at_) {
      fail(Errc::BadInput, "{}: ends at byte {}, inside of {}: the file is truncated", path_,
           bytes_.size(), what);
    }
    const std::string_view out = std::string_view(bytes_).substr(at_, n);
    at_ += n;
    return out;
  }
  // u16 length, then as many bytes.
  std::string text(std::string_view what) { return std::string(take(integer(2, what), what)); }
  // The same, as a text of JSON files would be.
  std::string utf8(std::string_view what) {
    std::string out = text(what);
    if (find_invalid_utf8(out) != std::string_view::npos) {
      fail(Errc::BadInput, "{}: {} before byte {} is not UTF-8", path_, what, at_);
    }
    return out;
  }
  TokenId id(std::string_view what) {
    const std::uint32_t value = u32(what);
    if (value > static_cast<std::uint32_t>(kMaxTokenId)) {
      fail(Errc::BadInput, "{}: {} before byte {} has the id {}, more than {}", path_, what, at_,
           value, kMaxTokenId);
    }
    return static_cast<TokenId>(value);
  }
  void finish() const {
    if (at_ != bytes_.size()) {
      fail(Errc::BadInput, "{}: has {} bytes after its end", path_, bytes_.size() - at_);
    }
  }

 private:
  std::uint32_t integer(std::size_t n, std::string_view what) {
    std::uint32_t value = 0;
    const std::string_view bytes = take(n, what);
    for (std::size_t i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

  const std::string& path_;
  std::string bytes_;
  std::size_t at_ = 0;
};

// The formats have no flags. In the vocabularies they are made for, <|name|> is a control token,
// and
// the others (<think>, <tool_call>) belong to the visible text.
bool looks_special(std::string_view content) {
  return content.size() > 4 && content.starts_with("<|") && content.ends_with("|>");
}

AddedToken added_token(std::string content, TokenId id) {
  AddedToken token;
  token.special = looks_special(content);
  token.content = std::move(content);
  token.id = id;
  return token;
}

}  // namespace

TokenizerSpec read_bpet(const std::string& path) {
  Reader in(path);
  if (in.take(kMagic.size(), "its magic number") != kMagic) {
    fail(Errc::BadInput, "{}: is no tokenizer.bin: it does not begin with BPET", path);
  }
  if (const std::uint32_t version = in.u32("its version"); version != kVersion) {
    fail(Errc::Unsupported, "{}: version {} of the format; only {} is known", path, version,
         kVersion);
  }
  const std::uint32_t n_vocab = in.u32("its counts");
  const std::uint32_t n_merges = in.u32("its counts");
  const std::uint32_t n_added = in.u32("its counts");

  TokenizerSpec spec;
  spec.origin = path;
  // Counts are untrusted: lists grow only as entries are found.
  for (std::uint32_t i = 0; i < n_vocab; ++i) {
    const TokenId id = in.id("a token");
    spec.vocab.push_back({in.utf8("a token"), id});
  }
  for (std::uint32_t i = 0; i < n_merges; ++i) {
    std::string left = in.utf8("a merge");
    spec.merges.push_back({std::move(left), in.utf8("a merge")});
  }
  for (std::uint32_t i = 0; i < n_added; ++i) {
    const TokenId id = in.id("an added token");
    spec.added_tokens.push_back(added_token(in.utf8("an added token"), id));
  }
  in.finish();
  spec.normalizer.add(Normalizer::Form{NormalForm::Nfc});
  spec.pretokenizer.add(Pretokenizer::Split{
      {kQwen35Pattern, Regex::Kind::Pattern, path}, SplitBehavior::Isolated, false});
  spec.decoder.byte_level = true;
  return spec;
}

TokenizerSpec read_vocab_bin(const std::string& path) {
  Reader in(path);
  const std::uint32_t n_ids = in.u32("its counts");
  const std::uint32_t max_id = in.u32("its counts");
  if (n_ids == 0 || max_id >= n_ids || max_id > static_cast<std::uint32_t>(kMaxTokenId)) {
    fail(Errc::BadInput, "{}: is no vocab.bin: {} entries with a largest id of {}", path, n_ids,
         max_id);
  }
  TokenizerSpec spec;
  spec.origin = path;
  spec.bpe.byte_level = false;
  spec.decode_only =
      "this vocabulary can only decode; to encode text, put the model's tokenizer.json (or a "
      "tokenizer.bin) beside it";
  for (std::uint32_t id = 0; id < n_ids; ++id) {
    std::string bytes = in.text("a token");
    if (bytes.empty()) continue;
    if (looks_special(bytes)) {
      spec.added_tokens.push_back(added_token(std::move(bytes), static_cast<TokenId>(id)));
    } else {
      spec.vocab.push_back({std::move(bytes), static_cast<TokenId>(id)});
    }
  }
  in.finish();
  return spec;
}

Tokenizer Tokenizer::from_bpet_file(const std::string& path) {
  return Tokenizer(read_bpet(path));
}

Tokenizer Tokenizer::from_vocab_bin_file(const std::string& path) {
  return Tokenizer(read_vocab_bin(path));
}

}  // namespace moeflux
