#include "text/tokenizer/regex.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxPatternBytes = 16384;
constexpr std::uint64_t kMatchSteps = 10'000'000;  // of one match, plus some for each byte of text
constexpr std::uint64_t kMatchStepsPerByte = 16;
constexpr std::uint32_t kMatchHeapKib = 256 * 1024;
constexpr std::chrono::seconds kTextTime{10};  // plus some for each byte of text
constexpr std::chrono::microseconds kTextTimePerByte{5};
constexpr unsigned kSearchesPerClockCheck = 64;
// One search tries so many places. It cannot be interrupted, and each place may cost the whole
// text.
constexpr std::size_t kPlacesPerSearch = 256;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return std::string(buffer.begin(), std::find(buffer.begin(), buffer.end(), PCRE2_UCHAR{0}));
}

PCRE2_SPTR units(std::string_view text) {
  static constexpr PCRE2_UCHAR kEmpty = 0;
  return text.empty() ? &kEmpty : reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

RegexScratch::RegexScratch(std::size_t text_bytes)
    : RegexScratch(text_bytes, kTextTime + kTextTimePerByte * text_bytes) {}

RegexScratch::RegexScratch(std::size_t text_bytes, std::chrono::microseconds time)
    : context_(pcre2_match_context_create(nullptr)),
      data_(pcre2_match_data_create(1, nullptr)),
      deadline_(std::chrono::steady_clock::now() + time) {
  if (context_ == nullptr || data_ == nullptr) {
    pcre2_match_context_free(context_);
    pcre2_match_data_free(data_);
    fail(Errc::OutOfMemory, "no memory for matching regular expressions");
  }
  const std::uint64_t steps = kMatchSteps + kMatchStepsPerByte * text_bytes;
  pcre2_set_match_limit(context_, static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                      steps, std::numeric_limits<std::uint32_t>::max())));
  pcre2_set_heap_limit(context_, kMatchHeapKib);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
}

Regex::Regex(std::string_view pattern, Kind kind, std::string origin) : origin_(std::move(origin)) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(Errc::LimitExceeded, "{}: the regular expression has {} bytes, more than {}", origin_,
         pattern.size(), kMaxPatternBytes);
  }
  if (find_invalid_utf8(pattern) != std::string_view::npos) {
    fail(Errc::BadInput, "{}: the regular expression is not UTF-8", origin_);
  }
  const bool literal = kind == Kind::Literal;
  const std::string text = literal ? std::string(pattern) : to_pcre2_syntax(pattern, origin_);
  const std::uint32_t options =
      PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT |
      (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);

  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) fail(Errc::OutOfMemory, "{}: no memory", origin_);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);

  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* code =
      pcre2_compile(units(text), text.size(), options, &error, &error_at, context.get());
  if (code == nullptr) {
    fail(Errc::BadInput, "{}: bad regular expression {}: {} (at {} of its translation {})", origin_,
         pattern.substr(0, 200), pcre2_message(error), error_at,
         std::string_view(text).substr(0, 400));
  }
  code_ = std::shared_ptr<pcre2_code>(code, &pcre2_code_free);
  // Without JIT (a platform or a policy that has none) the interpreter gives the same matches, more
  // slowly.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

bool Regex::find(std::string_view text, std::size_t from, RegexScratch& scratch,
                 ByteRange& out) const {
  while (from <= text.size()) {
    const std::size_t last_start = std::min(from + kPlacesPerSearch, text.size());
    if (find_near(text, from, last_start, scratch, out)) return true;
    from = last_start + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return false;
}

// The first match that begins in [from, last_start].
bool Regex::find_near(std::string_view text, std::size_t from, std::size_t last_start,
                      RegexScratch& scratch, ByteRange& out) const {
  const bool check_clock = scratch.until_clock_check_ == 0;
  scratch.until_clock_check_ =
      check_clock ? kSearchesPerClockCheck : scratch.until_clock_check_ - 1;
  if (check_clock && std::chrono::steady_clock::now() > scratch.deadline_) {
    fail(Errc::LimitExceeded, "{}: the regular expression takes too long on this text", origin_);
  }
  pcre2_set_offset_limit(scratch.context_, last_start);
  // Callers give valid UTF-8.
  int result = pcre2_match(code_.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                           scratch.data_, scratch.context_);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(code_.get(), units(text), text.size(), from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.data_, scratch.context_);
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    fail(Errc::LimitExceeded, "{}: the regular expression fails on this text: {}", origin_,
         pcre2_message(result));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data_);
  out = {bounds[0], bounds[1]};
  return true;
}

void Regex::find_all(std::string_view text, RegexScratch& scratch,
                     std::vector<ByteRange>& out) const {
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  ByteRange match{};
  while (from <= text.size() && find(text, from, scratch, match)) {
    if (match.begin == match.end && match.end == last_end) {
      from += from < text.size() ? decode_utf8(text, from).length : 1;
      continue;
    }
    out.push_back(match);
    from = last_end = match.end;
  }
}

}  // namespace moeflux
