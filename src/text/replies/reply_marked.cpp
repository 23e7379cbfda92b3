// Calls of a name and JSON with markers around and between them: DeepSeek V3 and V3.1, Kimi.
#include <string>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxHead = 512;
constexpr std::string_view kFence = "```";

class MarkedReader final : public SteppedReader {
 public:
  MarkedReader(const MarkedMarkup& markup, bool in_call)
      : markup_(markup), state_(in_call ? State::Head : State::Section) {}

 private:
  enum class State { Section, Head, Arguments, FencedName, Fence, Json, AfterJson, Raw, Between };

  Move step(Cursor& cursor, ReplyPieces& out) override;
  Move section(Cursor& cursor);
  Move head(Cursor& cursor);
  Move arguments(Cursor& cursor, ReplyPieces& out);
  Move fenced_name(Cursor& cursor);
  Move fence(Cursor& cursor, ReplyPieces& out);
  Move json(Cursor& cursor, ReplyPieces& out);
  Move after_json(Cursor& cursor, ReplyPieces& out);
  Move raw(Cursor& cursor, ReplyPieces& out);
  Move between(Cursor& cursor);

  Move begin_json(std::string_view name, ReplyPieces& out);
  Move end_call(bool complete, ReplyPieces& out);
  std::string_view plain_name() const;

  const MarkedMarkup& markup_;
  State state_;
  std::string head_;
  bool fenced_ = false;
  JsonScanner scanner_;
};

SteppedReader::Move MarkedReader::step(Cursor& cursor, ReplyPieces& out) {
  switch (state_) {
    case State::Section:
      return section(cursor);
    case State::Head:
      return head(cursor);
    case State::Arguments:
      return arguments(cursor, out);
    case State::FencedName:
      return fenced_name(cursor);
    case State::Fence:
      return fence(cursor, out);
    case State::Json:
      return json(cursor, out);
    case State::AfterJson:
      return after_json(cursor, out);
    case State::Raw:
      return raw(cursor, out);
    case State::Between:
      return between(cursor);
  }
  return Move::NotACall;
}

SteppedReader::Move MarkedReader::section(Cursor& cursor) {
  cursor.skip_blanks();
  const Cursor::Match match = cursor.match(markup_.call_begin);
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  if (match == Cursor::Match::No) return Move::NotACall;
  cursor.advance(markup_.call_begin.size());
  state_ = State::Head;
  return Move::On;
}

SteppedReader::Move MarkedReader::head(Cursor& cursor) {
  const std::size_t end = cursor.rest().find(markup_.separator);
  if (end == std::string_view::npos) {
    const bool wait = !cursor.at_end() && cursor.rest().size() <= kMaxHead;
    return wait ? Move::NeedMore : Move::NotACall;
  }
  std::string_view text = cursor.rest().substr(0, end);
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  if (text.empty() || end > kMaxHead || text.find_first_of("<\n") != std::string_view::npos) {
    return Move::NotACall;
  }
  head_ = text;
  cursor.advance(end + markup_.separator.size());
  state_ = State::Arguments;
  return Move::On;
}

SteppedReader::Move MarkedReader::arguments(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty()) return cursor.at_end() ? Move::NotACall : Move::NeedMore;
  fenced_ = false;
  if (cursor.rest().front() == '{') return begin_json(plain_name(), out);
  state_ = State::FencedName;
  return Move::On;
}

// functions.NAME:INDEX
std::string_view MarkedReader::plain_name() const {
  std::string_view name = head_;
  if (!markup_.numbered) return name;
  if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
  const std::size_t colon = name.rfind(':');
  const bool index = colon != std::string_view::npos && colon > 0 && colon + 1 < name.size() &&
                     name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return index ? name.substr(0, colon) : name;
}

// After the kind of the call ("function"): a line with the name.
SteppedReader::Move MarkedReader::fenced_name(Cursor& cursor) {
  const std::size_t end = cursor.rest().find('\n');
  if (end == std::string_view::npos) {
    const bool wait = !cursor.at_end() && cursor.rest().size() <= kMaxHead;
    return wait ? Move::NeedMore : Move::NotACall;
  }
  std::string_view name = cursor.rest().substr(0, end);
  while (!name.empty() && is_blank(name.back())) name.remove_suffix(1);
  if (name.empty() || end > kMaxHead || name.find_first_of("<{ ") != std::string_view::npos) {
    return Move::NotACall;
  }
  head_ = name;
  cursor.advance(end + 1);
  state_ = State::Fence;
  return Move::On;
}

SteppedReader::Move MarkedReader::fence(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty()) return cursor.at_end() ? Move::NotACall : Move::NeedMore;
  if (cursor.rest().front() == '{') return begin_json(head_, out);
  if (fenced_) return Move::NotACall;
  const Cursor::Match match = cursor.match("```json");
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  const bool bare = match == Cursor::Match::No && cursor.match(kFence) == Cursor::Match::Yes;
  if (match == Cursor::Match::No && !bare) return Move::NotACall;
  cursor.advance(bare ? kFence.size() : std::string_view("```json").size());
  fenced_ = true;
  return Move::On;
}

SteppedReader::Move MarkedReader::begin_json(std::string_view name, ReplyPieces& out) {
  announced_ = true;
  out.emplace_back(ToolCallBegin{0, std::string(name)});
  scanner_ = {};
  state_ = State::Json;
  return Move::On;
}

SteppedReader::Move MarkedReader::json(Cursor& cursor, ReplyPieces& out) {
  std::string taken;
  JsonScanner::Step step = JsonScanner::Step::More;
  const std::string_view rest = cursor.rest();
  std::size_t n = 0;
  while (n < rest.size() && step == JsonScanner::Step::More) {
    step = scanner_.feed(rest[n], taken);
    if (step != JsonScanner::Step::Bad) ++n;
  }
  add_arguments(out, taken);
  cursor.advance(n);
  if (step == JsonScanner::Step::Done) {
    state_ = State::AfterJson;
    return Move::On;
  }
  if (step == JsonScanner::Step::Bad) {
    state_ = State::Raw;
    return Move::On;
  }
  return cursor.at_end() ? end_call(false, out) : Move::NeedMore;
}

SteppedReader::Move MarkedReader::after_json(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty() && !cursor.at_end()) return Move::NeedMore;
  if (fenced_) {
    const Cursor::Match match = cursor.match(kFence);
    if (match == Cursor::Match::NeedMore) return Move::NeedMore;
    if (match == Cursor::Match::Yes) cursor.advance(kFence.size());
    fenced_ = false;
    if (match == Cursor::Match::Yes) return Move::On;
  }
  const Cursor::Match match = cursor.match(markup_.call_end);
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  if (match == Cursor::Match::Yes) cursor.advance(markup_.call_end.size());
  return end_call(true, out);
}

// The arguments are not JSON: what the model wrote instead, up to the end of the call.
SteppedReader::Move MarkedReader::raw(Cursor& cursor, ReplyPieces& out) {
  const std::vector<std::string> ends = {std::string(markup_.call_end),
                                         std::string(markup_.section_end)};
  const MarkerSearch search = find_marker(cursor.rest(), ends, cursor.at_end());
  add_arguments(out, cursor.rest().substr(0, search.n_safe));
  cursor.advance(search.n_safe);
  if (search.marker == MarkerSearch::kNone && !cursor.at_end()) return Move::NeedMore;
  if (search.marker == 0) cursor.advance(markup_.call_end.size());
  return end_call(false, out);
}

SteppedReader::Move MarkedReader::between(Cursor& cursor) {
  cursor.skip_blanks();
  if (cursor.empty()) return cursor.at_end() ? Move::Done : Move::NeedMore;
  const Cursor::Match end = cursor.match(markup_.section_end);
  if (end == Cursor::Match::Yes) {
    cursor.advance(markup_.section_end.size());
    return Move::Done;
  }
  const Cursor::Match next = cursor.match(markup_.call_begin);
  if (next == Cursor::Match::Yes) {
    cursor.advance(markup_.call_begin.size());
    state_ = State::Head;
    return Move::On;
  }
  const bool partial = end == Cursor::Match::NeedMore || next == Cursor::Match::NeedMore;
  return partial ? Move::NeedMore : Move::Done;
}

SteppedReader::Move MarkedReader::end_call(bool complete, ReplyPieces& out) {
  out.emplace_back(ToolCallEnd{0, complete});
  state_ = State::Between;
  return Move::CallEnded;
}

}  // namespace

std::unique_ptr<CallReader> make_marked_reader(ReplyFormat format, std::size_t opener) {
  return std::make_unique<MarkedReader>(marked_markup(format), opener == 1);
}

}  // namespace moeflux
