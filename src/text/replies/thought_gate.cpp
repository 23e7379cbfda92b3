#include "text/replies/thought_gate.h"

#include <algorithm>
#include <utility>

#include "text/replies/reply_harmony.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

void add(std::vector<ThoughtGate::Piece>& pieces, std::string_view text, bool is_thought) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().is_thought != is_thought) pieces.push_back({"", is_thought});
  pieces.back().text += text;
}

}  // namespace

ThoughtGate::ThoughtGate(const Options& options)
    : is_harmony_(options.format == ReplyFormat::Harmony),
      marks_(thought_markers(options.format)),
      place_(options.opens_thought ? Place::Thought
             : options.in_answer   ? Place::Answer
             : is_harmony_         ? Place::Head
                                   : Place::Begin) {}

std::size_t ThoughtGate::find(std::string_view text, const std::vector<std::string_view>& markers,
                              int& which) {
  const std::size_t n_before = tail_.size();
  tail_ += text;
  which = -1;
  std::size_t end = tail_.size(), longest = 1;
  for (std::size_t i = 0; i < markers.size(); ++i) {
    longest = std::max(longest, markers[i].size());
    const std::size_t at = tail_.find(markers[i]);
    if (at == std::string::npos || at + markers[i].size() > end) continue;
    end = at + markers[i].size();
    which = static_cast<int>(i);
  }
  if (which >= 0) {
    tail_.clear();
    return end - n_before;
  }
  tail_.erase(0, tail_.size() - std::min(tail_.size(), longest - 1));
  return text.size();
}

void ThoughtGate::read(std::string_view text, std::vector<Piece>& pieces) {
  while (!text.empty()) {
    int which = -1;
    std::size_t n = text.size();
    switch (place_) {
      case Place::Begin:
        held_ += text;
        return decide_begin(pieces);
      case Place::Thought:
        n = find(text, {marks_.end}, which);
        add(pieces, text.substr(0, n), true);
        if (which >= 0) place_ = is_harmony_ ? Place::Head : Place::Answer;
        break;
      case Place::Answer:
        if (is_harmony_) n = find(text, {kHarmonyEnd, kHarmonyStart, kHarmonyChannel}, which);
        add(pieces, text.substr(0, n), false);
        if (which >= 0) {
          place_ = Place::Head;
          head_ = which == 2 ? std::string(kHarmonyChannel) : "";
        }
        break;
      case Place::Head:
        n = find(text, {kHarmonyMessage}, which);
        add(pieces, text.substr(0, n), true);
        head_ += text.substr(0, n);
        if (which < 0) break;
        place_ =
            head_.find("<|channel|>analysis") != std::string::npos ? Place::Thought : Place::Answer;
        head_.clear();
        break;
    }
    text.remove_prefix(n);
  }
}

void ThoughtGate::decide_begin(std::vector<Piece>& pieces) {
  const auto first = std::find_if_not(held_.begin(), held_.end(), is_blank);
  const auto n_blanks = static_cast<std::size_t>(first - held_.begin());
  const std::string_view begun = std::string_view(held_).substr(n_blanks);
  if (begun.size() < marks_.begin.size() && marks_.begin.starts_with(begun)) return;
  const std::string held = std::exchange(held_, {});
  if (held.compare(n_blanks, marks_.begin.size(), marks_.begin) != 0) {
    place_ = Place::Answer;
    return read(held, pieces);
  }
  place_ = Place::Thought;
  const std::size_t n = n_blanks + marks_.begin.size();
  add(pieces, std::string_view(held).substr(0, n), true);
  read(std::string_view(held).substr(n), pieces);
}

std::vector<ThoughtGate::Piece> ThoughtGate::feed(std::string_view text) {
  std::vector<Piece> pieces;
  read(text, pieces);
  return pieces;
}

std::vector<ThoughtGate::Piece> ThoughtGate::finish() {
  std::vector<Piece> pieces;
  add(pieces, held_, false);
  held_.clear();
  return pieces;
}

}  // namespace moeflux
