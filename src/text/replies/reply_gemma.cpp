// Turns Gemma's notation into JSON while it comes.
#include "text/replies/reply_gemma.h"

#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxGemmaName = 256;
constexpr std::size_t kMaxNesting = 256;

class GemmaReader final : public SteppedReader {
 private:
  enum class State { Head, Key, Colon, Value, Text, Json, AfterValue, End, Raw, Between };

  Move step(Cursor& cursor, ReplyPieces& out) override;
  Move head(Cursor& cursor, ReplyPieces& out);
  Move key(Cursor& cursor, ReplyPieces& out);
  Move colon(Cursor& cursor, ReplyPieces& out);
  Move value(Cursor& cursor, ReplyPieces& out);
  Move literal(Cursor& cursor, ReplyPieces& out);
  Move text(Cursor& cursor, ReplyPieces& out);
  Move json(Cursor& cursor, ReplyPieces& out);
  Move after_value(Cursor& cursor, ReplyPieces& out);
  Move end(Cursor& cursor, ReplyPieces& out);
  Move raw(Cursor& cursor, ReplyPieces& out);
  Move between(Cursor& cursor);

  Move wait(const Cursor& cursor, ReplyPieces& out);
  Move give_up();
  Move open(Cursor& cursor, ReplyPieces& out);
  Move close(Cursor& cursor, ReplyPieces& out);
  Move end_call(bool complete, ReplyPieces& out);
  void begin_value(std::string_view name, ReplyPieces& out);

  State state_ = State::Head;
  std::string open_;      // '{' and '['
  bool is_first_ = true;  // of the entries of the innermost
  JsonScanner scanner_;
};

SteppedReader::Move GemmaReader::step(Cursor& cursor, ReplyPieces& out) {
  switch (state_) {
    case State::Head:
      return head(cursor, out);
    case State::Key:
      return key(cursor, out);
    case State::Colon:
      return colon(cursor, out);
    case State::Value:
      return value(cursor, out);
    case State::Text:
      return text(cursor, out);
    case State::Json:
      return json(cursor, out);
    case State::AfterValue:
      return after_value(cursor, out);
    case State::End:
      return end(cursor, out);
    case State::Raw:
      return raw(cursor, out);
    case State::Between:
      return between(cursor);
  }
  return Move::NotACall;
}

SteppedReader::Move GemmaReader::head(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  const Cursor::Match match = cursor.match(kGemmaCallName);
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  if (match == Cursor::Match::No) return Move::NotACall;
  const std::string_view rest = cursor.rest().substr(kGemmaCallName.size());
  const std::size_t end = rest.find('{');
  const std::string_view name = rest.substr(0, end);
  const bool fits = name.size() <= kMaxGemmaName &&
                    name.find_first_of(" \t\r\n\"<}[]:") == std::string_view::npos;
  if (end == std::string_view::npos)
    return fits && !cursor.at_end() ? Move::NeedMore : Move::NotACall;
  if (!fits || name.empty()) return Move::NotACall;
  announced_ = true;
  out.emplace_back(ToolCallBegin{0, std::string(name)});
  cursor.advance(kGemmaCallName.size() + end);
  open_.clear();
  return open(cursor, out);
}

SteppedReader::Move GemmaReader::wait(const Cursor& cursor, ReplyPieces& out) {
  return cursor.at_end() ? end_call(false, out) : Move::NeedMore;
}

SteppedReader::Move GemmaReader::give_up() {
  state_ = State::Raw;
  return Move::On;
}

SteppedReader::Move GemmaReader::open(Cursor& cursor, ReplyPieces& out) {
  if (open_.size() == kMaxNesting) return give_up();
  const char sign = cursor.rest().front();
  open_ += sign;
  add_arguments(out, {&sign, 1});
  cursor.advance(1);
  is_first_ = true;
  state_ = sign == '{' ? State::Key : State::Value;
  return Move::On;
}

SteppedReader::Move GemmaReader::close(Cursor& cursor, ReplyPieces& out) {
  const char sign = cursor.rest().front();
  if (sign != (open_.back() == '{' ? '}' : ']')) return give_up();
  add_arguments(out, {&sign, 1});
  cursor.advance(1);
  open_.pop_back();
  state_ = open_.empty() ? State::End : State::AfterValue;
  return Move::On;
}

void GemmaReader::begin_value(std::string_view name, ReplyPieces& out) {
  if (!is_first_) add_arguments(out, ",");
  add_arguments(out, json_string(name));
  add_arguments(out, ":");
}

SteppedReader::Move GemmaReader::key(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty()) return wait(cursor, out);
  const std::string_view rest = cursor.rest();
  if (rest.front() == '}') return close(cursor, out);
  const Cursor::Match quote = cursor.match(kGemmaQuote);
  if (quote == Cursor::Match::NeedMore) return Move::NeedMore;
  const bool quoted = quote == Cursor::Match::Yes;
  const std::size_t begin = quoted ? kGemmaQuote.size() : 0;
  const std::size_t end = quoted ? rest.find(kGemmaQuote, begin) : rest.find_first_of(":<{}[],\n");
  if (end == std::string_view::npos)
    return rest.size() > 2 * kMaxGemmaName ? give_up() : wait(cursor, out);
  std::string_view name = rest.substr(begin, end - begin);
  while (!quoted && !name.empty() && (is_blank(name.back()) || name.back() == '"'))
    name.remove_suffix(1);
  while (!quoted && name.starts_with('"')) name.remove_prefix(1);
  if (name.size() > kMaxGemmaName || (!quoted && rest[end] != ':')) return give_up();
  begin_value(name, out);
  cursor.advance(quoted ? end + kGemmaQuote.size() : end);
  state_ = State::Colon;
  return Move::On;
}

SteppedReader::Move GemmaReader::colon(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty()) return wait(cursor, out);
  if (cursor.rest().front() != ':') return give_up();
  cursor.advance(1);
  state_ = State::Value;
  return Move::On;
}

SteppedReader::Move GemmaReader::value(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty()) return wait(cursor, out);
  const bool in_list = open_.back() == '[';
  const char sign = cursor.rest().front();
  if (in_list && sign == ']') return close(cursor, out);
  const Cursor::Match quote = cursor.match(kGemmaQuote);
  if (quote == Cursor::Match::NeedMore) return Move::NeedMore;
  const bool is_text = quote == Cursor::Match::Yes;
  const bool opens = sign == '{' || sign == '[';
  if (!is_text && !opens && sign != '"') return literal(cursor, out);
  if (in_list && !is_first_) add_arguments(out, ",");
  if (opens) return open(cursor, out);
  scanner_ = {};
  if (is_text) {
    add_arguments(out, "\"");
    cursor.advance(kGemmaQuote.size());
  }
  state_ = is_text ? State::Text : State::Json;
  return Move::On;
}

// A number, true, false or null; anything else is a text without its marks.
SteppedReader::Move GemmaReader::literal(Cursor& cursor, ReplyPieces& out) {
  const std::size_t end = cursor.rest().find_first_of(",}]<");
  if (end == std::string_view::npos) return wait(cursor, out);
  std::string_view text = cursor.rest().substr(0, end);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  if (text.empty()) return give_up();
  if (open_.back() == '[' && !is_first_) add_arguments(out, ",");
  constexpr unsigned kTypes = kJsonNull | kJsonBoolean | kJsonNumber | kJsonString;
  add_arguments(out, text == "None" ? "null" : value_from_text(text, kTypes));
  cursor.advance(end);
  state_ = State::AfterValue;
  return Move::On;
}

SteppedReader::Move GemmaReader::text(Cursor& cursor, ReplyPieces& out) {
  static const std::vector<std::string> kEnd = {std::string(kGemmaQuote)};
  const MarkerSearch search = find_marker(cursor.rest(), kEnd, cursor.at_end());
  std::string escaped;
  append_json_escaped(escaped, cursor.rest().substr(0, search.n_safe));
  add_arguments(out, escaped);
  cursor.advance(search.n_safe);
  if (search.marker == MarkerSearch::kNone) return wait(cursor, out);
  cursor.advance(kGemmaQuote.size());
  add_arguments(out, "\"");
  state_ = State::AfterValue;
  return Move::On;
}

// A text between JSON's own quotes.
SteppedReader::Move GemmaReader::json(Cursor& cursor, ReplyPieces& out) {
  std::string taken;
  JsonScanner::Step step = JsonScanner::Step::More;
  while (!cursor.empty() && step == JsonScanner::Step::More) {
    step = scanner_.feed(cursor.rest().front(), taken);
    if (step != JsonScanner::Step::Bad) cursor.advance(1);
  }
  add_arguments(out, taken);
  if (step == JsonScanner::Step::More) return wait(cursor, out);
  if (step == JsonScanner::Step::Bad) return give_up();
  state_ = State::AfterValue;
  return Move::On;
}

SteppedReader::Move GemmaReader::after_value(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty()) return wait(cursor, out);
  if (cursor.rest().front() != ',') return close(cursor, out);
  cursor.advance(1);
  is_first_ = false;
  state_ = open_.back() == '{' ? State::Key : State::Value;
  return Move::On;
}

SteppedReader::Move GemmaReader::end(Cursor& cursor, ReplyPieces& out) {
  cursor.skip_blanks();
  if (cursor.empty() && !cursor.at_end()) return Move::NeedMore;
  const Cursor::Match match = cursor.match(kGemmaCallEnd);
  if (match == Cursor::Match::NeedMore) return Move::NeedMore;
  if (match == Cursor::Match::Yes) cursor.advance(kGemmaCallEnd.size());
  return end_call(true, out);
}

// What the model wrote instead, up to the end of the call.
SteppedReader::Move GemmaReader::raw(Cursor& cursor, ReplyPieces& out) {
  static const std::vector<std::string> kEnd = {std::string(kGemmaCallEnd)};
  const MarkerSearch search = find_marker(cursor.rest(), kEnd, cursor.at_end());
  add_arguments(out, cursor.rest().substr(0, search.n_safe));
  cursor.advance(search.n_safe);
  if (search.marker == MarkerSearch::kNone) return wait(cursor, out);
  cursor.advance(kGemmaCallEnd.size());
  return end_call(false, out);
}

SteppedReader::Move GemmaReader::between(Cursor& cursor) {
  cursor.skip_blanks();
  if (cursor.empty()) return cursor.at_end() ? Move::Done : Move::NeedMore;
  const Cursor::Match next = cursor.match(kGemmaCallBegin);
  if (next == Cursor::Match::NeedMore) return Move::NeedMore;
  if (next == Cursor::Match::No) return Move::Done;
  cursor.advance(kGemmaCallBegin.size());
  state_ = State::Head;
  return Move::On;
}

SteppedReader::Move GemmaReader::end_call(bool complete, ReplyPieces& out) {
  out.emplace_back(ToolCallEnd{0, complete});
  state_ = State::Between;
  return Move::CallEnded;
}

}  // namespace

std::unique_ptr<CallReader> make_gemma_reader() {
  return std::make_unique<GemmaReader>();
}

}  // namespace moeflux
