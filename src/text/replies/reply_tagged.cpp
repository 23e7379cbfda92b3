// Calls whose parameters have tags of their own. The values stand there as plain text, which the
// tool's schema turns into JSON: strings while they come, everything else when it is complete.
//
// A value may contain the very tags that end it (a file about this format, say). So a closing tag
// counts only when what follows it can follow a parameter.
#include <algorithm>
#include <set>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxBlanks = 64;  // between a closing tag and the next one

class TaggedReader final : public SteppedReader {
 public:
  TaggedReader(const TaggedMarkup& markup, bool in_function, const Json& tools)
      : markup_(markup),
        tools_(tools),
        state_(in_function ? State::Name : State::Block),
        bare_(in_function) {}

 private:
  enum class State { Block, Name, Body, Key, ValueOpen, Value, AfterFunction };

  Move step(Cursor& cursor, ReplyPieces& out) override;
  Move block(Cursor& cursor);
  Move name(Cursor& cursor);
  Move body(Cursor& cursor, ReplyPieces& out);
  Move key(Cursor& cursor, ReplyPieces& out);
  Move value_open(Cursor& cursor, ReplyPieces& out);
  Move value(Cursor& cursor, ReplyPieces& out);
  Move after_function(Cursor& cursor);

  Move fail_call(Cursor& cursor, ReplyPieces& out);
  Move end_call(bool complete, ReplyPieces& out);
  void announce(ReplyPieces& out);
  bool read_tag_name(Cursor& cursor, std::string_view open, std::string& found, Move& move) const;
  bool read_bare_name(Cursor& cursor, Move& move);
  void begin_value(ReplyPieces& out);

  // How a value may end at a place: what is part of the ending there, and whether it does.
  struct Ending {
    Cursor::Match match;
    std::size_t n_taken = 0;
  };
  Ending ending(std::string_view text, bool at_end) const;
  Ending after_parameter_end(Cursor cursor) const;
  Ending after_function_end(Cursor cursor, std::size_t n_line) const;
  Ending next_parameter(Cursor cursor, std::size_t n_line) const;

  const TaggedMarkup& markup_;
  const Json& tools_;
  State state_;
  bool bare_;  // without the marker of a block: only names of known tools are calls

  std::string name_;
  const Json* parameters_ = nullptr;
  std::set<std::string> keys_;  // so far

  std::string key_;
  unsigned types_ = kJsonString;  // that its value may have
  TextValueWriter value_{kJsonString};
  bool at_value_begin_ = false;
};

SteppedReader::Move TaggedReader::step(Cursor& cursor, ReplyPieces& out) {
  switch (state_) {
    case State::Block:
      return block(cursor);
    case State::Name:
      return name(cursor);
    case State::Body:
      return body(cursor, out);
    case State::Key:
      return key(cursor, out);
    case State::ValueOpen:
      return value_open(cursor, out);
    case State::Value:
      return value(cursor, out);
    case State::AfterFunction:
      return after_function(cursor);
  }
  return Move::NotACall;
}

SteppedReader::Move TaggedReader::block(Cursor& cursor) {
  cursor.skip_blanks();
  const Cursor::Match match = cursor.match(markup_.function_begin);
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  if (match == Cursor::Match::No) return Move::NotACall;
  cursor.advance(markup_.function_begin.size());
  state_ = State::Name;
  return Move::On;
}

// The name in an opening tag, up to `open`. Otherwise `move` is NeedMore or NotACall.
bool TaggedReader::read_tag_name(Cursor& cursor, std::string_view open, std::string& found,
                                 Move& move) const {
  const std::string_view rest = cursor.rest();
  const std::size_t end = rest.find(open);
  std::string_view text = rest.substr(0, end);
  if (end == std::string_view::npos) {  // `open` may have begun
    const std::size_t last = text.rfind(open.front());
    if (last != std::string_view::npos && open.starts_with(text.substr(last)))
      text = text.substr(0, last);
  }
  const bool fits =
      text.size() <= kMaxName && text.find_first_of("<\r\n") == std::string_view::npos;
  move =
      fits && end == std::string_view::npos && !cursor.at_end() ? Move::NeedMore : Move::NotACall;
  if (!fits || end == std::string_view::npos) return false;
  const std::size_t first = text.find_first_not_of(" \t\"'");
  if (first == std::string_view::npos) return false;
  found = text.substr(first, text.find_last_not_of(" \t\"'") - first + 1);
  cursor.advance(end + open.size());
  return true;
}

// A name without a tag of its own, up to the end of the line or the next tag.
bool TaggedReader::read_bare_name(Cursor& cursor, Move& move) {
  cursor.skip_blanks();
  const std::string_view rest = cursor.rest();
  const std::size_t end = rest.find_first_of("<\r\n");
  std::string_view text = rest.substr(0, end);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  const bool fits =
      text.size() <= kMaxName && text.find_first_of(" \t\"'{}[]()") == std::string_view::npos;
  move =
      fits && end == std::string_view::npos && !cursor.at_end() ? Move::NeedMore : Move::NotACall;
  if (!fits || end == std::string_view::npos || text.empty()) return false;
  name_ = text;
  cursor.advance(end);
  return true;
}

SteppedReader::Move TaggedReader::name(Cursor& cursor) {
  Move move;
  const bool found = markup_.function_begin.empty()
                         ? read_bare_name(cursor, move)
                         : read_tag_name(cursor, markup_.function_open, name_, move);
  if (!found) return move;
  const Json* function = find_tool(tools_, name_);
  if (bare_ && function == nullptr) return Move::NotACall;
  parameters_ = &parameters_schema(function);
  keys_.clear();
  state_ = State::Body;
  return Move::On;
}

SteppedReader::Move TaggedReader::body(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  bool partial = cursor.empty() && !cursor.at_end();
  for (const std::string_view tag :
       {markup_.parameter_begin, markup_.function_end, markup_.block_end}) {
    if (tag.empty()) continue;
    const Cursor::Match match = cursor.match(tag);
    partial = partial || match == Cursor::Match::NeedMore;
    if (match != Cursor::Match::Yes) continue;
    announce(out);
    if (tag == markup_.parameter_begin) {
      cursor.advance(tag.size());
      state_ = State::Key;
      return Move::On;
    }
    if (tag == markup_.function_end) cursor.advance(tag.size());
    return end_call(true, out);
  }
  return partial ? Move::NeedMore : fail_call(cursor, out);
}

SteppedReader::Move TaggedReader::key(Cursor& cursor, ReplyPieces& out) {
  Move move;
  const std::string_view open = markup_.names_string ? ">" : markup_.parameter_open;
  if (!read_tag_name(cursor, open, key_, move)) {
    if (move == Move::NeedMore) return move;
    move = fail_call(cursor, out);
    if (!cursor.at_end()) add_content(out, markup_.parameter_begin);
    return move;
  }
  types_ = kJsonString;
  if (markup_.names_string) {
    // KEY" string="true, the quotes at both ends being gone.
    const std::size_t end = key_.find('"');
    const std::string attributes = end == std::string::npos ? "" : key_.substr(end);
    key_.resize(std::min(end, key_.size()));
    if (attributes.ends_with("false")) types_ = kJsonAny;
  } else {
    types_ = parameter_types(*parameters_, key_);
  }
  if (markup_.value_open.empty()) {
    begin_value(out);
  } else {
    state_ = State::ValueOpen;
  }
  return Move::On;
}

SteppedReader::Move TaggedReader::value_open(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  const Cursor::Match match = cursor.match(markup_.value_open);
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  if (match == Cursor::Match::No) {
    const Move move = fail_call(cursor, out);
    if (!cursor.at_end())
      add_content(out,
                  fmt::format("{}{}{}", markup_.parameter_begin, key_, markup_.parameter_open));
    return move;
  }
  cursor.advance(markup_.value_open.size());
  begin_value(out);
  return Move::On;
}

SteppedReader::Move TaggedReader::value(Cursor& cursor, ReplyPieces& out) {
  if (at_value_begin_) {
    if (cursor.empty() && !cursor.at_end()) return Move::NeedMore;
    if (markup_.lines && cursor.match("\r\n") == Cursor::Match::NeedMore) return Move::NeedMore;
    if (markup_.lines && cursor.match("\r\n") == Cursor::Match::Yes) {
      cursor.advance(2);
    } else if (markup_.lines && cursor.match("\n") == Cursor::Match::Yes) {
      cursor.advance(1);
    }
    at_value_begin_ = false;
  }
  while (!cursor.empty()) {
    const std::string_view rest = cursor.rest();
    const std::size_t at = std::min(rest.find_first_of("<\r\n"), rest.size());
    add_arguments(out, value_.add(rest.substr(0, at)));
    cursor.advance(at);
    if (cursor.empty()) break;
    const Ending end = ending(cursor.rest(), cursor.at_end());
    if (end.match == Cursor::Match::NeedMore) return Move::NeedMore;
    if (end.match == Cursor::Match::Yes) {
      cursor.advance(end.n_taken);
      add_arguments(out, value_.end());
      state_ = State::Body;
      return Move::On;
    }
    add_arguments(out, value_.add(cursor.rest().substr(0, 1)));
    cursor.advance(1);
  }
  if (!cursor.at_end()) return Move::NeedMore;
  add_arguments(out, value_.abandon());
  return end_call(false, out);
}

TaggedReader::Ending TaggedReader::ending(std::string_view text, bool at_end) const {
  Cursor cursor(text, at_end);
  if (text.starts_with('\r')) cursor.advance(1);
  if (cursor.rest().starts_with('\n')) cursor.advance(1);
  if (!markup_.lines && cursor.at() > 0) return {Cursor::Match::No};
  const std::size_t n_line = cursor.at();
  if (cursor.empty()) return {at_end ? Cursor::Match::No : Cursor::Match::NeedMore};

  bool partial = false;
  for (const std::string_view tag :
       {markup_.parameter_end, markup_.function_end, markup_.parameter_begin}) {
    if (tag.empty()) continue;
    const Cursor::Match match = cursor.match(tag);
    partial = partial || match == Cursor::Match::NeedMore;
    if (match != Cursor::Match::Yes) continue;
    cursor.advance(tag.size());
    if (tag == markup_.parameter_end) return after_parameter_end(cursor);
    if (tag == markup_.function_end) return after_function_end(cursor, n_line);
    return next_parameter(cursor, n_line);
  }
  return {partial ? Cursor::Match::NeedMore : Cursor::Match::No};
}

TaggedReader::Ending TaggedReader::after_parameter_end(Cursor cursor) const {
  const std::size_t n_taken = cursor.at();
  cursor.skip_blanks();
  if (cursor.at() - n_taken > kMaxBlanks) return {Cursor::Match::No};
  if (cursor.empty())
    return {cursor.at_end() ? Cursor::Match::Yes : Cursor::Match::NeedMore, n_taken};
  bool partial = false;
  for (const std::string_view tag :
       {markup_.parameter_begin, markup_.function_end, markup_.block_end}) {
    if (tag.empty()) continue;
    if (cursor.match(tag) == Cursor::Match::Yes) return {Cursor::Match::Yes, n_taken};
    partial = partial || tag.starts_with(cursor.rest());
  }
  if (!partial) return {Cursor::Match::No};
  return {cursor.at_end() ? Cursor::Match::Yes : Cursor::Match::NeedMore, n_taken};
}

// The parameter's own end is missing, but this is the end of the block.
TaggedReader::Ending TaggedReader::after_function_end(Cursor cursor, std::size_t n_line) const {
  const std::size_t after = cursor.at();
  cursor.skip_blanks();
  if (cursor.at() - after > kMaxBlanks) return {Cursor::Match::No};
  if (cursor.empty() && cursor.at_end()) return {Cursor::Match::Yes, n_line};
  return {cursor.match(markup_.block_end), n_line};
}

// The parameter's own end is missing, but here begins another one that the tool has.
TaggedReader::Ending TaggedReader::next_parameter(Cursor cursor, std::size_t n_line) const {
  std::string key;
  Move move;
  if (n_line == 0) return {Cursor::Match::No};
  if (!read_tag_name(cursor, markup_.parameter_open, key, move)) {
    return {move == Move::NeedMore ? Cursor::Match::NeedMore : Cursor::Match::No};
  }
  const auto properties = parameters_->find("properties");
  const bool known = properties != parameters_->end() && properties->is_object() &&
                     properties->contains(key) && !keys_.contains(key);
  return {known ? Cursor::Match::Yes : Cursor::Match::No, n_line};
}

SteppedReader::Move TaggedReader::after_function(Cursor& cursor) {
  cursor.skip_blanks();
  if (cursor.empty()) return cursor.at_end() ? Move::Done : Move::NeedMore;
  const Cursor::Match end = cursor.match(markup_.block_end);
  if (end == Cursor::Match::Yes) {
    cursor.advance(markup_.block_end.size());
    return Move::Done;
  }
  const Cursor::Match next =
      markup_.function_begin.empty() ? Cursor::Match::No : cursor.match(markup_.function_begin);
  if (next == Cursor::Match::Yes) {
    cursor.advance(markup_.function_begin.size());
    state_ = State::Name;
    return Move::On;
  }
  const bool partial = end == Cursor::Match::NeedMore || next == Cursor::Match::NeedMore;
  return partial ? Move::NeedMore : Move::Done;
}

SteppedReader::Move TaggedReader::fail_call(Cursor& cursor, ReplyPieces& out) {
  if (!announced_) return Move::NotACall;
  if (cursor.at_end()) cursor.advance(cursor.rest().size());  // half a tag
  return end_call(false, out);
}

SteppedReader::Move TaggedReader::end_call(bool complete, ReplyPieces& out) {
  if (complete) add_arguments(out, "}");
  out.emplace_back(ToolCallEnd{0, complete});
  state_ = State::AfterFunction;
  return Move::CallEnded;
}

void TaggedReader::announce(ReplyPieces& out) {
  if (announced_) return;
  announced_ = true;
  out.emplace_back(ToolCallBegin{0, name_});
  add_arguments(out, "{");
}

void TaggedReader::begin_value(ReplyPieces& out) {
  if (!keys_.empty()) add_arguments(out, ",");
  add_arguments(out, json_string(key_));
  add_arguments(out, ":");
  keys_.insert(key_);
  value_ = TextValueWriter(types_);
  at_value_begin_ = true;
  state_ = State::Value;
}

}  // namespace

std::unique_ptr<CallReader> make_tagged_reader(ReplyFormat format, std::size_t opener,
                                               const Json& tools) {
  return std::make_unique<TaggedReader>(tagged_markup(format), opener == 1, tools);
}

}  // namespace moeflux
