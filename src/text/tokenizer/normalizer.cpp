#include "text/tokenizer/normalizer.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {
namespace {

// Builds a TrackedText from pieces of another one.
class Rewriter {
 public:
  explicit Rewriter(const TrackedText& from) : from_(from), tracking_(!from.is_data.empty()) {
    to_.text.reserve(from.text.size());
  }
  // Writes `text` in place of bytes [begin, end) of the source.
  void put(std::string_view text, std::size_t begin, std::size_t end) {
    to_.text += text;
    if (!tracking_) return;
    const std::string_view marks = std::string_view(from_.is_data).substr(begin, end - begin);
    const bool any = marks.find('\1') != std::string_view::npos;
    to_.is_data.append(text.size(), any ? '\1' : '\0');
  }
  void keep(std::size_t begin, std::size_t end) {
    to_.text.append(from_.text, begin, end - begin);
    if (tracking_) to_.is_data.append(from_.is_data, begin, end - begin);
  }
  TrackedText take() { return std::move(to_); }

 private:
  const TrackedText& from_;
  bool tracking_;
  TrackedText to_;
};

// Calls f(code_point, begin, end) for every character.
template <class F>
void for_each_character(std::string_view text, F f) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    f(step.code_point, at, at + step.length);
    at += step.length;
  }
}

// No real normalizer makes text much longer; one that does would only eat memory.
void require_size(std::size_t size, std::size_t original) {
  constexpr std::size_t kMaxGrowth = 32;
  constexpr std::size_t kAllowance = 65536;
  if (size > original * kMaxGrowth + kAllowance) {
    fail(Errc::LimitExceeded, "the tokenizer's normalizer turns {} bytes of text into {}", original,
         size);
  }
}

void apply_step(const Normalizer::Form& step, TrackedText& in, RegexScratch&) {
  if (is_ascii(in.text)) return;
  if (in.is_data.empty()) {
    in.text = to_normal_form(in.text, step.form);
    return;
  }
  // No normal form reaches across an ASCII character: it composes with nothing before it and is
  // never reordered. So text is cut before each of them, and the marks of a cut piece are those of
  // its source.
  Rewriter out(in);
  std::size_t begin = 0;
  const auto flush = [&](std::size_t end) {
    const std::string_view piece = std::string_view(in.text).substr(begin, end - begin);
    out.put(to_normal_form(piece, step.form), begin, end);
    begin = end;
  };
  for (std::size_t at = 1; at < in.text.size(); ++at) {
    if (static_cast<unsigned char>(in.text[at]) < 0x80) flush(at);
  }
  flush(in.text.size());
  in = out.take();
}

void apply_step(const Normalizer::Lowercase&, TrackedText& in, RegexScratch&) {
  Rewriter out(in);
  std::string lower;
  for_each_character(in.text, [&](char32_t c, std::size_t begin, std::size_t end) {
    lower.clear();
    append_lowercase(lower, c);
    out.put(lower, begin, end);
  });
  in = out.take();
}

void apply_step(const Normalizer::Replace& step, TrackedText& in, RegexScratch& scratch) {
  std::vector<ByteRange> matches;
  if (!in.text.empty()) step.pattern.find_all(in.text, scratch, matches);
  if (matches.empty()) return;
  Rewriter out(in);
  std::size_t done = 0;
  // The content comes from a file and may be long.
  require_size(in.text.size() + matches.size() * step.content.size(), in.text.size());
  for (const ByteRange& match : matches) {
    out.keep(done, match.begin);
    out.put(step.content, match.begin, match.end);
    done = match.end;
  }
  out.keep(done, in.text.size());
  in = out.take();
}

void apply_step(const Normalizer::Prepend& step, TrackedText& in, RegexScratch&) {
  if (in.text.empty()) return;
  Rewriter out(in);
  out.put(step.content, 0, 1);
  out.keep(0, in.text.size());
  in = out.take();
}

void apply_step(const Normalizer::Strip& step, TrackedText& in, RegexScratch&) {
  std::size_t begin = in.text.size();  // of what is not white space
  std::size_t end = 0;
  for_each_character(in.text, [&](char32_t c, std::size_t from, std::size_t to) {
    if (is_white_space(c)) return;
    begin = std::min(begin, from);
    end = to;
  });
  if (end == 0) {  // white space only
    in = {};
    return;
  }
  Rewriter out(in);
  out.keep(step.left ? begin : 0, step.right ? end : in.text.size());
  in = out.take();
}

void apply_step(const Normalizer::BytesToVisible&, TrackedText& in, RegexScratch&) {
  Rewriter out(in);
  for (std::size_t at = 0; at < in.text.size(); ++at) {
    out.put(bytes_to_visible(std::string_view(in.text).substr(at, 1)), at, at + 1);
  }
  in = out.take();
}

}  // namespace

void Normalizer::apply(TrackedText& text, RegexScratch& scratch) const {
  const std::size_t original = text.text.size();
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { apply_step(s, text, scratch); }, step);
    require_size(text.text.size(), original);
  }
}

}  // namespace moeflux
