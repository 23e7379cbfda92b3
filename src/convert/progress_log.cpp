#include "convert/progress_log.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

constexpr std::string_view kFormat = "moeflux-convert-1";
constexpr std::uint64_t kMaxLogBytes = std::uint64_t{1} << 31;

std::string line_of(const DonePiece& piece) {
  return fmt::format("{} {} {} {}\n", piece.bank, piece.index, checksum_text(piece.checksum),
                     piece.note);
}

// Returns the length of the new file.
std::uint64_t write_header(const std::string& path, const Json& header) {
  Json line = {{"format", kFormat}};
  line.update(header);
  const std::string text = dump_json(line) + "\n";
  write_whole_file(path, text);
  return text.size();
}

bool take_integer(std::string_view& line, std::int64_t& value) {
  const auto result = std::from_chars(line.data(), line.data() + line.size(), value);
  if (result.ec != std::errc() || result.ptr == line.data() + line.size() || *result.ptr != ' ') {
    return false;
  }
  line.remove_prefix(static_cast<std::size_t>(result.ptr - line.data()) + 1);
  return true;
}

std::optional<DonePiece> parse_line(std::string_view line) {
  DonePiece piece;
  std::int64_t bank = 0;
  if (!take_integer(line, bank) || bank < -1 || bank > INT32_MAX) return std::nullopt;
  if (!take_integer(line, piece.index) || piece.index < 0) return std::nullopt;
  if (line.size() < 17 || line[16] != ' ') return std::nullopt;
  if (!parse_checksum(line.substr(0, 16), piece.checksum)) return std::nullopt;
  piece.bank = static_cast<int>(bank);
  piece.note = line.substr(17);
  return piece;
}

std::optional<Json> parse_header(std::string_view line, const std::string& path) {
  try {
    Json header = parse_json(line, path);
    if (header.is_object() && header.value("format", Json()) == kFormat) return header;
  } catch (const Error&) {  // not ours: the caller says so
  }
  return std::nullopt;
}

}  // namespace

std::optional<FoundProgress> read_progress(const std::string& path) {
  if (!file_exists(path)) return std::nullopt;
  const std::string text = read_text_file(path, kMaxLogBytes);
  FoundProgress found;
  std::size_t at = 0;
  for (bool first = true;; first = false) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const std::string_view line(text.data() + at, end - at);
    if (first) {
      std::optional<Json> header = parse_header(line, path);
      if (!header) return std::nullopt;
      found.header = std::move(*header);
    } else {
      std::optional<DonePiece> piece = parse_line(line);
      if (!piece) break;
      found.pieces.push_back(std::move(*piece));
    }
    at = end + 1;
  }
  if (at == 0) return std::nullopt;
  found.bytes = at;
  return found;
}

ProgressLog::ProgressLog(const std::string& path, const Json& header)
    : ProgressLog(path, write_header(path, header)) {}

ProgressLog::ProgressLog(const std::string& path, std::uint64_t resume_at)
    : file_(path, resume_at, OutputFile::Mode::Resume), end_(resume_at) {}

void ProgressLog::append(std::span<const DonePiece> pieces) {
  std::string lines;
  for (const DonePiece& piece : pieces) lines += line_of(piece);
  if (lines.empty()) return;
  file_.write(end_, std::as_bytes(std::span(lines)));
  file_.sync();
  end_ += lines.size();
}

}  // namespace moeflux
