#include "cli/client/sse_reader.h"

#include <utility>

#include "base/error.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void SseReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + event_.data.size() > kMaxEventBytes) {
      fail(Errc::LimitExceeded, "the server sends an event of more than {} MiB",
           kMaxEventBytes >> 20);
    }
    if (end == std::string_view::npos) return;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line();
  }
}

void SseReader::finish() {
  line_.clear();
  end_event();
}

void SseReader::end_line() {
  const std::string whole = std::exchange(line_, {});
  std::string_view line = whole;
  if (std::exchange(at_beginning_, false) && line.substr(0, 3) == kByteOrderMark)
    line.remove_prefix(3);
  if (line.empty()) return end_event();
  const std::size_t colon = line.find(':');  // 0: a comment, with an empty name
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  // Some servers report errors as a field of that name, without data.
  const bool is_error = name == "error";
  if (name == "event" || is_error) event_.name = is_error ? name : value;
  if (name != "data" && !is_error) return;
  if (std::exchange(has_data_, true)) event_.data += '\n';
  event_.data += value;
}

void SseReader::end_event() {
  const SseEvent event = std::exchange(event_, {});
  if (std::exchange(has_data_, false)) sink_(event);
}

}  // namespace moeflux::cli
