// A regular expression from a tokenizer file, matched with PCRE2. The pattern is untrusted: its
// length, the work of one match, the memory of one match and the time for one text are bounded, and
// exceeding a bound is an Error.
//
// Regex is immutable and may be shared by threads; a RegexScratch belongs to one thread and one
// text at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/marked_text.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace moeflux {

using ByteRange = MarkedText::Range;

// Working memory and the time left for tokenizing one text.
class RegexScratch {
 public:
  // By default, far more time than any pattern in use needs.
  explicit RegexScratch(std::size_t text_bytes);
  RegexScratch(std::size_t text_bytes, std::chrono::microseconds time);
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_context_8* context_;
  pcre2_real_match_data_8* data_;
  std::chrono::steady_clock::time_point deadline_;
  unsigned until_clock_check_ = 0;
};

class Regex {
 public:
  enum class Kind { Pattern, Literal };

  // `origin` names the pattern in messages: "tokenizer.json: pre_tokenizer". Text is valid UTF-8
  // everywhere here.
  Regex(std::string_view pattern, Kind kind, std::string origin);

  // Appends all matches from left to right. They do not overlap; an empty match is reported unless
  // it touches the match before it.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<ByteRange>& out) const;

 private:
  bool find(std::string_view text, std::size_t from, RegexScratch& scratch, ByteRange& out) const;
  bool find_near(std::string_view text, std::size_t from, std::size_t last_start,
                 RegexScratch& scratch, ByteRange& out) const;

  std::shared_ptr<pcre2_real_code_8> code_;
  std::string origin_;
};

// tokenizer.json writes its regular expressions in the dialect of Oniguruma; we match with PCRE2.
// The two agree on most of the syntax. This rewrites what they read differently, so that the same
// text is split the same way: \s \w \h \b and POSIX classes (other character sets), scripts (PCRE2
// means script extensions), nested classes and class intersections (PCRE2 10.42 has none), (?m),
// x{n,m}+ and x{,n}.
//
// The result is for PCRE2 with UTF, UCP and MULTILINE. Throws Unsupported for what has no
// equivalent and BadInput for what is not a pattern; `origin` names it in the message. PCRE2 itself
// judges the rest.
std::string to_pcre2_syntax(std::string_view pattern, std::string_view origin);

}  // namespace moeflux
