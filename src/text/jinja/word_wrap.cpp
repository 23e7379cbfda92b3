#include "text/jinja/word_wrap.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

struct Chunk {
  std::size_t begin, end;  // bytes
  std::size_t length;      // characters
  bool space;
};

bool is_space_at(std::string_view text, std::size_t at) {
  const CodePoint c = decode(text, at);
  return c.valid && is_space(c.value);
}

// Whether a line may end after the hyphen at `at`: letters on both sides of it.
bool breaks_after_hyphen(std::string_view text, std::size_t begin, std::size_t at) {
  if (text[at] != '-' || at < begin + 2 || at + 2 >= text.size()) return false;
  const auto letter = [&](std::size_t i) { return is_alpha(decode(text, i).value); };
  return is_alpha(decode_before(text, at).value) && letter(at + 1) && letter(at + 2);
}

std::vector<Chunk> chunks_of(Runtime& runtime, std::string_view text, bool break_on_hyphens) {
  std::vector<Chunk> chunks;
  for (std::size_t at = 0; at < text.size();) {
    Chunk chunk{at, at, 0, is_space_at(text, at)};
    while (at < text.size() && is_space_at(text, at) == chunk.space) {
      const bool hyphen = break_on_hyphens && breaks_after_hyphen(text, chunk.begin, at);
      at += decode(text, at).size;
      ++chunk.length;
      if (hyphen) break;
    }
    chunk.end = at;
    runtime.meter.step(2);
    runtime.meter.check_items(chunks.size(), 2 * sizeof(Chunk));
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace

std::vector<MarkedString> wrap_line(Runtime& runtime, const MarkedString& line,
                                    const WrapOptions& options) {
  runtime.meter.text(line.size());
  std::vector<Chunk> chunks = chunks_of(runtime, line.view(), options.break_on_hyphens);
  std::reverse(chunks.begin(), chunks.end());  // the next chunk is the last one
  std::vector<MarkedString> lines;
  while (!chunks.empty()) {
    runtime.meter.step(4);
    runtime.meter.check_items(lines.size(), 2 * sizeof(MarkedString));
    if (chunks.back().space && !lines.empty()) chunks.pop_back();
    if (chunks.empty()) break;
    const std::size_t begin = chunks.back().begin;
    std::size_t end = begin;
    std::size_t length = 0;
    bool ends_in_space = false;
    std::size_t before_space = begin;
    while (!chunks.empty() && length + chunks.back().length <= options.width) {
      ends_in_space = chunks.back().space;
      if (ends_in_space) before_space = end;
      length += chunks.back().length;
      end = chunks.back().end;
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().length > options.width) {
      Chunk& word = chunks.back();
      if (options.break_long_words) {
        const std::size_t room = options.width - length;
        const std::string_view rest = line.view().substr(word.begin);
        end = word.begin + byte_of_character(rest, room);
        word.begin = end;
        word.length -= room;
        ends_in_space = false;  // Python keeps the space before a broken word
      } else if (length == 0) {
        end = word.end;
        chunks.pop_back();
      }
    }
    const std::size_t stop = ends_in_space ? before_space : end;
    if (stop > begin) lines.push_back(line.substr(begin, stop));
  }
  return lines;
}

}  // namespace moeflux::jinja
