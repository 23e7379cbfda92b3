// Tells the thoughts of a reply from the rest while it is being written, byte for byte: what stop
// strings look at is only what is no thought. It takes nothing apart and loses nothing; that is the
// reply parser's work, which comes after it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/replies/reply_parser.h"
#include "text/replies/reply_thinking.h"

namespace moeflux {

class ThoughtGate {
 public:
  struct Options {
    ReplyFormat format = ReplyFormat::Plain;
    bool opens_thought = false;  // the reply begins inside of one
    bool in_answer = false;      // or inside of the answer: no thought can begin it any more
  };
  explicit ThoughtGate(const Options& options);

  struct Piece {
    std::string text;
    bool is_thought;  // the markers around thoughts, and heads of messages, count as thought
  };
  // Joined, the pieces are the text. Only what may become the marker that begins a thought waits.
  std::vector<Piece> feed(std::string_view text);
  std::vector<Piece> finish();

 private:
  enum class Place { Begin, Thought, Answer, Head };
  void read(std::string_view text, std::vector<Piece>& pieces);
  void decide_begin(std::vector<Piece>& pieces);
  // Bytes of `text` up to and with the end of the first of `markers` that is complete in it; all of
  // them, and `which` negative, where none is.
  std::size_t find(std::string_view text, const std::vector<std::string_view>& markers, int& which);

  const bool is_harmony_;
  const ThoughtMarkers marks_;
  Place place_;
  std::string held_;  // at the beginning, not decided yet
  std::string tail_;  // of what was read at this place, as far as a marker may end in it
  std::string head_;  // of a message
};

}  // namespace moeflux
