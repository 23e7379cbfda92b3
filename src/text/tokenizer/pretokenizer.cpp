#include "text/tokenizer/pretokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {

namespace {

// A stretch of a piece that the pattern matched or left.
struct Cut {
  ByteRange range;
  bool is_match;
};

void cover(std::size_t size, const std::vector<ByteRange>& matches, bool invert,
           std::vector<Cut>& cuts) {
  std::size_t done = 0;
  for (const ByteRange& match : matches) {
    if (done != match.begin) cuts.push_back({{done, match.begin}, invert});
    cuts.push_back({match, !invert});
    done = match.end;
  }
  if (done != size) cuts.push_back({{done, size}, invert});
}

// Appends the ranges that `behavior` makes of the cuts, moved by `shift`; empty ones are dropped.
void keep_cuts(const std::vector<Cut>& cuts, SplitBehavior behavior, std::size_t shift,
               std::vector<ByteRange>& out) {
  const auto first = static_cast<std::ptrdiff_t>(out.size());
  const auto none_yet = [&] { return static_cast<std::ptrdiff_t>(out.size()) == first; };
  const auto push = [&](const Cut& cut) {
    out.push_back({cut.range.begin + shift, cut.range.end + shift});
  };
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::Isolated:
    case SplitBehavior::Removed:
      for (const Cut& cut : cuts) {
        if (behavior == SplitBehavior::Isolated || !cut.is_match) push(cut);
      }
      break;
    case SplitBehavior::Contiguous:
    case SplitBehavior::MergedWithPrevious:
      for (const Cut& cut : cuts) {
        const bool join = behavior == SplitBehavior::Contiguous ? cut.is_match == previous_match
                                                                : cut.is_match && !previous_match;
        if (join && !none_yet()) {
          out.back().end = cut.range.end + shift;
        } else {
          push(cut);
        }
        previous_match = cut.is_match;
      }
      break;
    case SplitBehavior::MergedWithNext:
      for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
        if (cut->is_match && !previous_match && !none_yet()) {
          out.back().begin = cut->range.begin + shift;
        } else {
          push(*cut);
        }
        previous_match = cut->is_match;
      }
      std::reverse(out.begin() + first, out.end());
      break;
  }
  out.erase(std::remove_if(out.begin() + first, out.end(),
                           [](const ByteRange& range) { return range.begin == range.end; }),
            out.end());
}

void find_characters(std::string_view text, bool (*matches)(char32_t),
                     std::vector<ByteRange>& out) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (matches(step.code_point)) out.push_back({at, at + step.length});
    at += step.length;
  }
}

// Splits each piece at what find(piece, matches) finds in it.
template <class Find>
void split_pieces(Pieces& pieces, SplitBehavior behavior, bool invert, Find find) {
  std::vector<ByteRange> ranges, matches;
  std::vector<Cut> cuts;
  ranges.reserve(pieces.ranges.size());
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::string_view piece = pieces[i];
    matches.clear();
    cuts.clear();
    find(piece, matches);
    cover(piece.size(), matches, invert, cuts);
    keep_cuts(cuts, behavior, pieces.ranges[i].begin, ranges);
  }
  pieces.ranges = std::move(ranges);
}

// Replaces the text of each piece by rewrite(index, piece).
template <class Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite rewrite) {
  Pieces out;
  out.text.reserve(pieces.text.size());
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::size_t begin = out.text.size();
    out.text += rewrite(i, pieces[i]);
    out.ranges.push_back({begin, out.text.size()});
  }
  pieces = std::move(out);
}

std::string replace_spaces(std::string_view text, std::string_view replacement) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += replacement;
    } else {
      out += c;
    }
  }
  return out;
}

struct Apply {
  Pieces& pieces;
  bool at_text_start;
  RegexScratch& scratch;

  void operator()(const Pretokenizer::Split& step) const {
    split_pieces(pieces, step.behavior, step.invert, [&](std::string_view piece, auto& matches) {
      step.pattern.find_all(piece, scratch, matches);
    });
  }
  void operator()(const Pretokenizer::CharacterSplit& step) const {
    split_pieces(pieces, step.behavior, false, [&](std::string_view piece, auto& matches) {
      find_characters(piece, step.matches, matches);
    });
  }
  void operator()(const Pretokenizer::PrefixSpace&) const {
    rewrite_pieces(pieces, [](std::size_t, std::string_view piece) {
      std::string text(piece);
      if (!text.starts_with(' ')) text.insert(text.begin(), ' ');
      return text;
    });
  }
  void operator()(const Pretokenizer::BytesToVisible&) const {
    rewrite_pieces(pieces,
                   [](std::size_t, std::string_view piece) { return bytes_to_visible(piece); });
  }
  void operator()(const Pretokenizer::Metaspace& step) const {
    using Prepend = Pretokenizer::Metaspace::Prepend;
    rewrite_pieces(pieces, [&](std::size_t i, std::string_view piece) {
      std::string text = replace_spaces(piece, step.replacement);
      const bool wanted = step.prepend == Prepend::Always ||
                          (step.prepend == Prepend::First && i == 0 && at_text_start);
      if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
      return text;
    });
    if (!step.split) return;
    split_pieces(pieces, SplitBehavior::MergedWithNext, false,
                 [&](std::string_view piece, auto& matches) {
                   for (std::size_t at = piece.find(step.replacement); at != std::string_view::npos;
                        at = piece.find(step.replacement, at + step.replacement.size())) {
                     matches.push_back({at, at + step.replacement.size()});
                   }
                 });
  }
};

}  // namespace

bool Pretokenizer::drop_final_bytes_to_visible() {
  if (steps_.empty() || !std::holds_alternative<BytesToVisible>(steps_.back())) return false;
  steps_.pop_back();
  return true;
}

Pieces Pretokenizer::split(std::string text, bool at_text_start, RegexScratch& scratch) const {
  Pieces pieces{std::move(text), {}};
  if (!pieces.text.empty()) pieces.ranges.push_back({0, pieces.text.size()});
  for (const Step& step : steps_) std::visit(Apply{pieces, at_text_start, scratch}, step);
  return pieces;
}

}  // namespace moeflux
