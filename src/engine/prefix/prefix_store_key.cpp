#include "engine/prefix/prefix_store_key.h"

#include <charconv>

#include "base/error.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

constexpr std::size_t kHexDigits = 16;
constexpr std::int64_t kLargestEnd = std::int64_t{1} << 40;

std::string_view extension(PrefixPart part) {
  switch (part) {
    case PrefixPart::Kv:
      return ".kv";
    case PrefixPart::State:
      return ".state";
    case PrefixPart::Mtp:
      return ".mtp";
  }
  return "";
}

std::uint64_t key_of(std::uint64_t parent, std::span<const TokenId> tokens) {
  ChecksumStream stream;
  stream.add(std::as_bytes(std::span(&parent, 1)));
  stream.add(std::as_bytes(tokens));
  return stream.value();
}

}  // namespace

std::string PrefixName::text() const {
  return fmt::format("{}-{}-{}{}", end, checksum_text(parent), checksum_text(key), extension(part));
}

std::optional<PrefixName> PrefixName::parse(std::string_view text) {
  PrefixName name;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), name.end);
  if (error != std::errc() || name.end < 1 || name.end > kLargestEnd) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  if (text.size() < 2 * kHexDigits + 2 || text[0] != '-' || text[kHexDigits + 1] != '-' ||
      !parse_checksum(text.substr(1, kHexDigits), name.parent) ||
      !parse_checksum(text.substr(kHexDigits + 2, kHexDigits), name.key)) {
    return std::nullopt;
  }
  text.remove_prefix(2 * kHexDigits + 2);
  for (const PrefixPart part : {PrefixPart::Kv, PrefixPart::State, PrefixPart::Mtp}) {
    name.part = part;
    if (text == extension(part)) return name;
  }
  return std::nullopt;
}

PrefixKeys::PrefixKeys(std::uint64_t root, std::int64_t block, std::span<const TokenId> tokens)
    : block_(block), tokens_(tokens), chain_{root} {
  const auto size = static_cast<std::size_t>(block);
  for (std::size_t at = 0; at + size <= tokens.size(); at += size)
    chain_.push_back(key_of(chain_.back(), tokens.subspan(at, size)));
}

PrefixName PrefixKeys::block_name(std::int64_t index) const {
  MOEFLUX_ASSERT(index >= 0 && index < n_blocks());
  return {PrefixPart::Kv, (index + 1) * block_, key_after(index), key_after(index + 1)};
}

PrefixName PrefixKeys::state_name(std::int64_t position) const {
  MOEFLUX_ASSERT(position > 0 && position <= static_cast<std::int64_t>(tokens_.size()));
  const std::int64_t whole = position / block_;
  const auto tail = tokens_.subspan(static_cast<std::size_t>(whole * block_),
                                    static_cast<std::size_t>(position - whole * block_));
  return {PrefixPart::State, position, key_after(whole), key_of(key_after(whole), tail)};
}

}  // namespace moeflux
