#include "engine/prefix/prefix_store_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'M', 'F', 'X', 'P', 'R', 'E', 'F', 'X'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxIdentityBytes = 4096;
constexpr std::size_t kPieceTokens = 4096;
constexpr std::size_t kPieceBytes = 1u << 20;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t part = 0;
  std::uint64_t parent = 0, key = 0;
  std::int64_t first = 0, end = 0;
  std::uint32_t identity_bytes = 0;
  std::uint32_t zero = 0;
  std::uint64_t payload_bytes = 0;

  // 0 for a header that no file can have.
  std::uint64_t file_bytes() const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
    if (identity_bytes > kMaxIdentityBytes || end < 0 || payload_bytes > kMost ||
        static_cast<std::uint64_t>(end) > kMost) {
      return 0;
    }
    return sizeof(Header) + identity_bytes + static_cast<std::uint64_t>(end) * sizeof(TokenId) +
           payload_bytes + sizeof(std::uint64_t);
  }
  PrefixName name() const { return {static_cast<PrefixPart>(part), end, parent, key}; }
};
static_assert(sizeof(Header) == 64);

Header header_of(const PrefixFileInfo& info) {
  Header header;
  header.part = static_cast<std::uint32_t>(info.name.part);
  header.parent = info.name.parent;
  header.key = info.name.key;
  header.first = info.first;
  header.end = info.name.end;
  header.identity_bytes = static_cast<std::uint32_t>(info.identity.size());
  header.payload_bytes = info.payload_bytes;
  return header;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

[[noreturn]] void damaged(const std::string& path, std::string_view why) {
  fail(Errc::BadInput, "{}: {}", path, why);
}

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

std::uint64_t PrefixFileInfo::file_bytes() const {
  return header_of(*this).file_bytes();
}

PrefixFileWriter::PrefixFileWriter(const std::string& path, const PrefixFileInfo& info)
    : file_(path, FileAccess::Private), payload_left_(info.payload_bytes) {
  MOEFLUX_ASSERT(static_cast<std::int64_t>(info.tokens.size()) == info.name.end);
  MOEFLUX_ASSERT(info.identity.size() <= kMaxIdentityBytes);
  const Header header = header_of(info);
  put(bytes_of(header));
  put(std::as_bytes(std::span(info.identity)));
  put(std::as_bytes(info.tokens));
}

void PrefixFileWriter::put(std::span<const std::byte> bytes) {
  checksum_.add(bytes);
  file_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void PrefixFileWriter::write(std::span<const std::byte> payload) {
  MOEFLUX_ASSERT(payload.size() <= payload_left_);
  payload_left_ -= payload.size();
  put(payload);
}

void PrefixFileWriter::commit() {
  MOEFLUX_ASSERT(payload_left_ == 0);
  put(bytes_of(checksum_.value()));
  file_.commit();
}

PrefixFileReader::PrefixFileReader(const std::string& path, const PrefixFileInfo& info)
    : file_(path), payload_left_(info.payload_bytes) {
  if (file_.size() != info.file_bytes()) damaged(path, "it has another size");
  const Header expected = header_of(info);
  Header header;
  get(std::as_writable_bytes(std::span(&header, 1)));
  if (std::memcmp(&header, &expected, sizeof(Header)) != 0) damaged(path, "it has another header");
  std::string identity(info.identity.size(), '\0');
  get(std::as_writable_bytes(std::span(identity)));
  if (identity != info.identity) damaged(path, "it is of another model");
  std::vector<TokenId> piece(std::min(info.tokens.size(), kPieceTokens));
  for (std::size_t at = 0; at < info.tokens.size(); at += piece.size()) {
    const std::size_t n = std::min(piece.size(), info.tokens.size() - at);
    get(std::as_writable_bytes(std::span(piece).first(n)));
    if (!std::equal(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n),
                    info.tokens.begin() + static_cast<std::ptrdiff_t>(at))) {
      damaged(path, "it is of other tokens");
    }
  }
}

void PrefixFileReader::get(std::span<std::byte> bytes) {
  file_.read(offset_, bytes);
  checksum_.add(bytes);
  offset_ += bytes.size();
}

void PrefixFileReader::read(std::span<std::byte> payload) {
  MOEFLUX_ASSERT(payload.size() <= payload_left_);
  payload_left_ -= payload.size();
  get(payload);
}

void PrefixFileReader::finish() {
  MOEFLUX_ASSERT(payload_left_ == 0);
  const std::uint64_t sum = checksum_.value();
  std::uint64_t stored = 0;
  file_.read(offset_, std::as_writable_bytes(std::span(&stored, 1)));
  if (stored != sum) damaged(file_.path(), "its checksum is wrong");
}

PrefixFileSummary check_prefix_file(const std::string& path) {
  const File file(path);
  const auto name = PrefixName::parse(std::filesystem::path(path).filename().string());
  Header header;
  if (file.size() < sizeof(Header)) damaged(path, "it ends early");
  file.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kMagic || header.version != kVersion) damaged(path, "it is no prefix file");
  if (header.file_bytes() != file.size()) damaged(path, "it has another size");
  ChecksumStream sum;
  std::vector<std::byte> piece(kPieceBytes);
  const std::uint64_t end = file.size() - sizeof(std::uint64_t);
  for (std::uint64_t at = 0; at < end; at += piece.size()) {
    const auto bytes = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), end - at)));
    file.read(at, bytes);
    sum.add(bytes);
  }
  std::uint64_t stored = 0;
  file.read(end, std::as_writable_bytes(std::span(&stored, 1)));
  if (stored != sum.value()) damaged(path, "its checksum is wrong");
  if (!name || *name != header.name()) damaged(path, "it has another name");
  std::string identity(header.identity_bytes, '\0');
  file.read(sizeof(Header), std::as_writable_bytes(std::span(identity)));
  return {std::move(identity), *name};
}

std::string peek_prefix_identity(const std::string& path) noexcept {
  try {
    const File file(path);
    Header header;
    file.read(0, std::as_writable_bytes(std::span(&header, 1)));
    if (header.magic != kMagic || header.file_bytes() != file.size()) return "";
    std::string identity(header.identity_bytes, '\0');
    file.read(sizeof(Header), std::as_writable_bytes(std::span(identity)));
    return identity;
  } catch (const std::exception&) {
    return "";
  }
}

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
