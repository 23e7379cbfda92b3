#include "cli/chat/input.h"

#include <cerrno>
#include <utility>

#include <unistd.h>

#include "base/error.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

std::string_view trim_left(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

std::string_view trim_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

// Two backslashes at the end are two backslashes.
bool continues(std::string_view line) {
  const std::size_t last = line.find_last_not_of('\\');
  return (line.size() - (last + 1)) % 2 == 1;
}

}  // namespace

std::optional<std::string> InputAssembler::add(std::string_view line) {
  if (text_.size() + line.size() > kMaxBytes) {
    clear();
    fail(Errc::LimitExceeded, "a message may have at most {} bytes", kMaxBytes);
  }
  if (open_ == Open::No) {
    quoted_ = false;
    text_.clear();
    if (const std::string_view start = trim_left(line); start.substr(0, 3) == kQuotes) {
      open_ = Open::Quotes;
      quoted_ = true;
      line = start.substr(kQuotes.size());
      if (trim_right(line).empty()) return std::nullopt;  // the text begins on the next line
    }
  }
  if (open_ == Open::Quotes) {
    const std::string_view text = trim_right(line);
    if (text.ends_with(kQuotes)) {
      text_ += text.substr(0, text.size() - kQuotes.size());
      return complete();
    }
    text_ += line;
    text_ += '\n';
    return std::nullopt;
  }
  if (continues(line)) {
    open_ = Open::Backslash;
    text_ += line.substr(0, line.size() - 1);
    text_ += '\n';
    return std::nullopt;
  }
  text_ += line;
  return complete();
}

std::optional<std::string> InputAssembler::complete() {
  open_ = Open::No;
  // The newline before the closing quotes belongs to them.
  if (quoted_ && !text_.empty() && text_.back() == '\n') text_.pop_back();
  return std::exchange(text_, {});
}

std::optional<std::string> InputAssembler::finish() {
  if (!is_open() || text_.empty()) {
    clear();
    return std::nullopt;
  }
  if (text_.back() == '\n') text_.pop_back();
  open_ = Open::No;
  return std::exchange(text_, {});
}

void InputAssembler::clear() {
  open_ = Open::No;
  quoted_ = false;
  text_.clear();
}

InputLine PlainLines::read(const std::string& /*prompt*/, const std::string& /*initial*/) {
  while (true) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      InputLine line{InputEnd::Line, buffer_.substr(0, newline)};
      buffer_.erase(0, newline + 1);
      if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
      return line;
    }
    if (ended_) {
      if (buffer_.empty()) return {InputEnd::EndOfInput, ""};
      return {InputEnd::Line, std::exchange(buffer_, {})};
    }
    if (buffer_.size() > InputAssembler::kMaxBytes) {
      ended_ = true;  // nothing sensible follows
      buffer_.clear();
      fail(Errc::LimitExceeded, "a line of the input has more than {} bytes",
           InputAssembler::kMaxBytes);
    }
    char bytes[4096];
    const ssize_t n = ::read(descriptor_, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) return {InputEnd::Interrupt, ""};
    if (n <= 0) {
      ended_ = true;
    } else {
      buffer_.append(bytes, static_cast<std::size_t>(n));
    }
  }
}

}  // namespace moeflux::cli
