#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

std::optional<std::string> decode_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(bits >> n_bits)));
  }
  return bytes;
}

VocabEntry read_line(std::string_view line, const std::string& path, std::size_t number) {
  const std::size_t space = line.find(' ');
  const auto bytes = decode_base64(line.substr(0, space));
  TokenId rank = -1;
  if (space != std::string_view::npos) {
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
    if (error != std::errc() || stop != end || rank > kMaxTokenId) rank = -1;
  }
  if (!bytes || bytes->empty() || rank < 0) {
    fail(Errc::BadInput, "{}: line {} is not a token in base64 and its rank", path, number);
  }
  return {bytes_to_visible(*bytes), rank};
}

}  // namespace

TokenizerSpec read_tiktoken_ranks(const std::string& path) {
  TokenizerSpec spec;
  spec.origin = path;
  const std::string text = read_text_file(path);
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (!line.empty()) spec.vocab.push_back(read_line(line, path, number));
    at = end + 1;
  }
  spec.merge_order = TokenizerSpec::MergeOrder::ById;
  spec.bpe.ignore_merges = true;
  spec.pretokenizer.add(Pretokenizer::Split{
      {kKimiPattern, Regex::Kind::Pattern, path}, SplitBehavior::Isolated, false});
  spec.decoder.byte_level = true;
  return spec;
}

Tokenizer Tokenizer::from_tiktoken_file(const std::string& ranks,
                                        const std::string& tokenizer_config) {
  TokenizerSpec spec = read_tiktoken_ranks(ranks);
  if (!tokenizer_config.empty()) read_tokenizer_config(tokenizer_config, spec);
  return Tokenizer(std::move(spec));
}

}  // namespace moeflux
