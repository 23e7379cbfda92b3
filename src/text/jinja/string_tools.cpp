#include "text/jinja/string_tools.h"

#include <algorithm>
#include <cstring>

namespace moeflux::jinja {
namespace {

bool is_in(std::string_view characters, std::string_view character) {
  for (std::size_t at = 0; at < characters.size();) {
    const std::size_t size = decode(characters, at).size;
    if (characters.substr(at, size) == character) return true;
    at += size;
  }
  return false;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// Greek sigma at the end of a word has its own small letter.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t size) {
  const bool letter_before = at > 0 && is_alpha(decode_before(text, at).value);
  const bool letter_after = at + size < text.size() && is_alpha(decode(text, at + size).value);
  return letter_before && !letter_after;
}

}  // namespace

std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view wanted,
                      std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const std::string_view rest = text.substr(from);
  const void* found = ::memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  const std::size_t at =
      found == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  runtime.meter.text(found == nullptr ? rest.size() : at - from);
  return at;
}

std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view wanted) {
  runtime.meter.step(1 + text.size() / 64 * (1 + wanted.size()));
  return text.rfind(wanted);
}

MarkedString strip(Runtime& runtime, const MarkedString& text, Side side,
                   const MarkedString* characters) {
  const std::string_view bytes = text.view();
  const auto strips = [&](std::size_t at, const CodePoint& c) {
    if (characters != nullptr) {
      runtime.meter.text(characters->size());
      return is_in(characters->view(), bytes.substr(at, c.size));
    }
    return c.valid && is_space(c.value);
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if (side != Side::Right) {
    while (begin < end) {
      const CodePoint c = decode(bytes, begin);
      if (!strips(begin, c)) break;
      begin += c.size;
    }
  }
  if (side != Side::Left) {
    while (end > begin) {
      const CodePoint c = decode_before(bytes, end);
      if (!strips(end - c.size, c)) break;
      end -= c.size;
    }
  }
  return text.substr(begin, end);
}

MarkedString change_case(Runtime& runtime, const MarkedString& text, Case wanted) {
  TextBuilder out(runtime);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    const bool sigma = wanted == Case::Lower && c.value == 0x3A3;
    if (!c.valid) {
      out.append(text, at, at + c.size);
    } else if (sigma && is_final_sigma(text.view(), at, c.size)) {
      out.append("\xCF\x82", text.origin_at(at));
    } else {
      out.append(to_case(c.value, wanted), text.origin_at(at));
    }
    at += c.size;
  }
  return out.take();
}

MarkedString capitalize(Runtime& runtime, const MarkedString& text) {
  if (text.empty()) return text;
  const std::size_t first = decode(text.bytes(), 0).size;
  MarkedString result = change_case(runtime, text.substr(0, first), Case::Title);
  result.append(change_case(runtime, text.substr(first), Case::Lower));
  return result;
}

MarkedString replace(Runtime& runtime, const MarkedString& text, const MarkedString& from,
                     const MarkedString& to, std::int64_t count) {
  TextBuilder out(runtime);
  std::size_t at = 0;
  while (count != 0 && at <= text.size()) {
    const std::size_t found = find_text(runtime, text.view(), from.view(), at);
    if (found == std::string::npos) break;
    // An empty pattern matches before every character and at the end.
    out.append(text, at, found);
    out.append(to);
    at = found + from.size();
    --count;
    if (from.empty()) {
      if (at == text.size()) return out.take();
      const std::size_t next = at + decode(text.bytes(), at).size;
      out.append(text, at, next);
      at = next;
    }
  }
  out.append(text, at, text.size());
  return out.take();
}

std::vector<MarkedString> split_lines(Runtime& runtime, const MarkedString& text, bool keep_ends) {
  runtime.meter.text(text.size());
  std::vector<MarkedString> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    std::size_t next = at + c.size;
    if (c.valid && is_line_end(c.value)) {
      if (c.value == U'\r' && next < text.size() && text.bytes()[next] == '\n') ++next;
      runtime.meter.step(4);
      runtime.meter.check_items(lines.size(), 2 * sizeof(MarkedString));
      lines.push_back(text.substr(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

MarkedString center(Runtime& runtime, const MarkedString& text, std::int64_t width,
                    std::string_view fill) {
  runtime.meter.text(text.size());
  const auto length = static_cast<std::int64_t>(count_characters(text.view()));
  if (width <= length) return text;
  const std::int64_t missing = width - length;
  // Python puts the odd space to the left when the width is odd.
  const std::int64_t left = missing / 2 + (missing & width & 1);
  TextBuilder out(runtime);
  out.fill(fill, static_cast<std::uint64_t>(left), Origin::Markup);
  out.append(text);
  out.fill(fill, static_cast<std::uint64_t>(missing - left), Origin::Markup);
  return out.take();
}

}  // namespace moeflux::jinja
