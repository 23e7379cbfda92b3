#include "cli/chat/attachment.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_budget.h"
#include "cli/options/environment.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/text_input.h"

namespace moeflux::cli {
namespace {

// Longer than any run of backticks in the text.
std::string fence_for(const std::string& text) {
  std::size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return std::string(longest + 1, '`');
}

std::string with_newlines(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool in_pair = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (!in_pair) out += text[i];
  }
  return out;
}

}  // namespace

std::string typed_path(const std::string& text) {
  std::string out;
  const char quote = !text.empty() && (text[0] == '"' || text[0] == '\'') ? text[0] : '\0';
  if (quote != '\0' && text.size() > 1 && text.back() == quote) {
    out = text.substr(1, text.size() - 2);
  } else {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool escaped = text[i] == '\\' && i + 1 < text.size();
      out += escaped ? text[++i] : text[i];
    }
  }
  const bool at_home = out == "~" || out.starts_with("~/");
  return at_home && environment().home ? *environment().home + out.substr(1) : out;
}

std::size_t ChatAttachments::bytes() const {
  std::size_t sum = 0;
  for (const File& file : files_) sum += file.text.size();
  return sum;
}

std::string ChatAttachments::add(const std::string& path) {
  const std::string text = with_newlines(read_text_file(path, kMaxBytes));
  check_utf8(text, path);
  if (text.find('\0') != std::string::npos) fail(Errc::BadInput, "{}: this is no text", path);
  if (bytes() + text.size() > kMaxBytes) {
    fail(Errc::LimitExceeded, "{}: with it the attached files have more than {}", path,
         format_bytes(kMaxBytes));
  }
  const std::string name = std::filesystem::path(path).filename().string();
  files_.push_back({name, text});
  return fmt::format("{}, {}, goes with the next message", safe_line(name),
                     format_bytes(text.size()));
}

std::string ChatAttachments::list() const {
  std::string lines;
  for (const File& file : files_) {
    lines += fmt::format("  {} ({})\n", safe_line(file.name), format_bytes(file.text.size()));
  }
  return lines;
}

std::string ChatAttachments::take(const std::string& message) {
  std::string out;
  for (const File& file : std::exchange(files_, {})) {
    const std::string fence = fence_for(file.text);
    const char* end = file.text.empty() || file.text.back() == '\n' ? "" : "\n";
    out += fmt::format("File {}:\n{}\n{}{}{}\n\n", file.name, fence, file.text, end, fence);
  }
  return out + message;
}

}  // namespace moeflux::cli
