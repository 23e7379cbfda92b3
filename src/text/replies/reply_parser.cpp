#include "text/replies/reply_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_harmony.h"
#include "text/replies/reply_json.h"
#include "text/replies/reply_thinking.h"

namespace moeflux {
namespace {

std::size_t n_without_trailing_blanks(std::string_view text) {
  std::size_t n = text.size();
  while (n > 0 && is_blank(text[n - 1])) --n;
  return n;
}

// The calls of one block, with the text they were read from.
class CallBlock {
 public:
  CallBlock(ReplyFormat format, std::size_t opener, std::string_view opener_text, const Json& tools)
      : reader_(make_call_reader(format, opener, tools)), raw_(opener_text) {}

  struct Read {
    CallState state;
    ReplyPieces pieces;  // index 0
  };
  // Takes what it can from the front of `text`.
  Read read(std::string& text, bool at_end) {
    Read result{};
    const CallStep step = reader_->read(text, at_end, result.pieces);
    raw_.append(text, 0, step.n_taken);
    text.erase(0, step.n_taken);
    result.state = step.state;
    return result;
  }
  // All that was read since the last call, the opening marker included.
  std::string take_raw() {
    ++n_calls_;
    return std::exchange(raw_, {});
  }
  const std::string& raw() const { return raw_; }
  bool had_calls() const { return n_calls_ > 0; }

 private:
  std::unique_ptr<CallReader> reader_;
  std::string raw_;
  int n_calls_ = 0;
};

class Parser final : public ReplyParser {
 public:
  Parser(ReplyFormat format, const ReplyOptions& options)
      : format_(format), options_(options), marks_(moeflux::thought_markers(format)) {
    const bool calls = options.tools.is_array() && !options.tools.empty();
    if (calls) markers_ = call_markers(format);
    content_markers_ = markers_.openers;
    content_markers_.insert(content_markers_.end(), markers_.closers.begin(),
                            markers_.closers.end());
    thought_markers_ = markers_.openers;
    thought_markers_.emplace_back(marks_.end);
    if (!options.reasoning) state_ = State::Content;
  }

  ReplyPieces feed(std::string_view text) override {
    text_ += text;
    return run(false);
  }
  ReplyPieces finish(ReplyEnd end) override {
    cut_ = end == ReplyEnd::Cut;
    if (cut_) drop_half_marker();
    return run(true);
  }

 private:
  enum class State { Start, Thought, CallInThought, AfterThought, Content, Calls };

  ReplyPieces run(bool at_end);
  bool step(bool at_end, ReplyPieces& out);  // false: waits for more text
  bool start(bool at_end);
  bool thought(bool at_end, ReplyPieces& out);
  bool call_in_thought(bool at_end, ReplyPieces& out);
  bool after_thought(bool at_end);
  bool content(bool at_end, ReplyPieces& out);
  bool calls(bool at_end, ReplyPieces& out);

  void add_thought(std::string_view text, ReplyPieces& out);
  void end_thought();
  void add_text(std::string_view text, ReplyPieces& out);
  void add_call_pieces(ReplyPieces pieces, ReplyPieces& out);
  void give_back(ReplyPieces& out);
  void drop_half_marker();
  void settle(ReplyPieces& out);

  const ReplyFormat format_;
  const ReplyOptions options_;
  const ThoughtMarkers marks_;
  CallMarkers markers_;
  std::vector<std::string> content_markers_;  // openers, then closers
  std::vector<std::string> thought_markers_;  // openers, then the end of the thought

  State state_ = State::Start;
  bool cut_ = false;
  std::string text_;  // not read yet
  bool thought_begun_ = false;
  std::string blanks_;  // held back: they are dropped where a marker follows
  int n_calls_ = 0;
  std::optional<CallBlock> block_;
  ReplyPieces withheld_;  // of a call that is not complete, unless they are streamed
  bool gave_up_ = false;  // on the last call of the block, which became content

  // A call that a thought may contain, see call_in_thought().
  std::unique_ptr<ReplyParser> inner_;
  std::string inner_raw_;
  std::size_t n_inner_fed_ = 0;
  ReplyPieces inner_pieces_;
};

ReplyPieces Parser::run(bool at_end) {
  ReplyPieces out;
  while (step(at_end, out)) {
  }
  if (at_end) settle(out);
  return out;
}

bool Parser::step(bool at_end, ReplyPieces& out) {
  switch (state_) {
    case State::Start:
      return start(at_end);
    case State::Thought:
      return thought(at_end, out);
    case State::CallInThought:
      return call_in_thought(at_end, out);
    case State::AfterThought:
      return after_thought(at_end);
    case State::Content:
      return content(at_end, out);
    case State::Calls:
      return calls(at_end, out);
  }
  return false;
}

// A thought can only begin a reply. Some models open it although the prompt has done so.
bool Parser::start(bool at_end) {
  Cursor cursor(text_, at_end);
  cursor.skip_blanks();
  const Cursor::Match match = cursor.match(marks_.begin);
  if (match == Cursor::Match::NeedMore) return false;
  if (match == Cursor::Match::Yes) text_.erase(0, cursor.at() + marks_.begin.size());
  const bool thinks = match == Cursor::Match::Yes || options_.opens_thought;
  state_ = thinks ? State::Thought : State::Content;
  return true;
}

bool Parser::thought(bool at_end, ReplyPieces& out) {
  const MarkerSearch search = find_marker(text_, thought_markers_, at_end);
  add_thought(std::string_view(text_).substr(0, search.n_safe), out);
  text_.erase(0, search.n_safe);
  if (search.marker == MarkerSearch::kNone) return false;
  if (search.marker + 1 == thought_markers_.size()) {
    text_.erase(0, marks_.end.size());
    end_thought();
    return true;
  }
  ReplyOptions options = options_;
  options.reasoning = false;
  options.stream_arguments = false;
  inner_ = make_reply_parser(format_, options);
  inner_raw_.clear();
  n_inner_fed_ = 0;
  inner_pieces_.clear();
  state_ = State::CallInThought;
  return true;
}

// Models do forget to end their thought before they call a tool, but they also think about calls.
// Calls count when the reply ends with them; until then they are held back, and as soon as anything
// else follows they are part of the thought.
bool Parser::call_in_thought(bool at_end, ReplyPieces& out) {
  inner_raw_ += text_;
  text_.clear();
  const std::size_t from = n_inner_fed_ - std::min(n_inner_fed_, marks_.end.size() - 1);
  const std::size_t end = inner_raw_.find(marks_.end, from);
  if (end == std::string::npos) {
    ReplyPieces pieces = inner_->feed(std::string_view(inner_raw_).substr(n_inner_fed_));
    n_inner_fed_ = inner_raw_.size();
    if (at_end) {
      ReplyPieces last = inner_->finish(cut_ ? ReplyEnd::Cut : ReplyEnd::Complete);
      pieces.insert(pieces.end(), last.begin(), last.end());
    }
    inner_pieces_.insert(inner_pieces_.end(), pieces.begin(), pieces.end());
    const bool only_calls = std::none_of(pieces.begin(), pieces.end(), [](const ReplyPiece& piece) {
      return std::holds_alternative<ContentDelta>(piece);
    });
    if (only_calls && !at_end) return false;
    if (only_calls) {
      blanks_.clear();
      n_calls_ = 1;
      out.insert(out.end(), inner_pieces_.begin(), inner_pieces_.end());
      state_ = State::Content;
      return true;
    }
  }
  // Up to the end of the thought nothing else can be found; otherwise, another marker may be.
  const std::size_t n_thought = end != std::string::npos ? end : at_end ? inner_raw_.size() : 1;
  add_thought(std::string_view(inner_raw_).substr(0, n_thought), out);
  text_ = inner_raw_.substr(n_thought);
  state_ = State::Thought;
  return true;
}

void Parser::add_thought(std::string_view text, ReplyPieces& out) {
  if (!thought_begun_) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  }
  if (text.empty()) return;
  thought_begun_ = true;
  const std::size_t n = n_without_trailing_blanks(text);
  if (n > 0) {
    add_reasoning(out, std::exchange(blanks_, {}));
    add_reasoning(out, text.substr(0, n));
  }
  blanks_ += text.substr(n);
}

void Parser::end_thought() {
  blanks_.clear();
  state_ = State::AfterThought;
}

bool Parser::after_thought(bool at_end) {
  const std::size_t n = std::min(text_.find_first_not_of("\r\n"), text_.size());
  text_.erase(0, n);
  if (text_.empty() && !at_end) return false;
  state_ = State::Content;
  return true;
}

bool Parser::content(bool at_end, ReplyPieces& out) {
  const MarkerSearch search = find_marker(text_, content_markers_, at_end);
  add_text(std::string_view(text_).substr(0, search.n_safe), out);
  text_.erase(0, search.n_safe);
  if (search.marker == MarkerSearch::kNone) return false;
  const std::string& marker = content_markers_[search.marker];
  text_.erase(0, marker.size());
  if (search.marker >= markers_.openers.size()) {
    // The end of a block that has ended already means nothing.
    if (n_calls_ == 0) add_text(marker, out);
    return true;
  }
  block_.emplace(format_, search.marker, marker, options_.tools);
  gave_up_ = false;
  state_ = State::Calls;
  return true;
}

bool Parser::calls(bool at_end, ReplyPieces& out) {
  CallBlock::Read read = block_->read(text_, at_end);
  switch (read.state) {
    case CallState::More:
      add_call_pieces(std::move(read.pieces), out);
      return false;
    case CallState::CallEnded:
      add_call_pieces(std::move(read.pieces), out);
      return true;
    case CallState::Done:
      if (gave_up_) add_text(block_->raw(), out);
      if (cut_) text_.clear();  // waited for because it may be markup
      if (at_end && !text_.empty()) {
        const bool half =
            std::any_of(content_markers_.begin(), content_markers_.end(),
                        [&](const std::string& marker) { return marker.starts_with(text_); });
        if (half) text_.clear();
      }
      break;
    case CallState::NotACall:
      if (cut_) {
        blanks_.clear();
        text_.clear();
      } else {
        give_back(out);
      }
      break;
  }
  block_.reset();
  state_ = State::Content;
  return true;
}

// What was taken for a call is content. Behind the marker, another one may be hiding.
void Parser::give_back(ReplyPieces& out) {
  const std::string& raw = block_->raw();
  const std::size_t n = block_->had_calls() ? raw.size() : 1;
  add_text(std::string_view(raw).substr(0, n), out);
  text_.insert(0, raw, n);
}

// What waits outside of calls begins like a marker, perhaps after blanks.
void Parser::drop_half_marker() {
  const std::size_t marker = text_.find('<');
  if (marker == std::string::npos || state_ == State::Calls) return;
  text_.erase(marker);
  blanks_.clear();
}

void Parser::add_call_pieces(ReplyPieces pieces, ReplyPieces& out) {
  for (ReplyPiece& piece : pieces) {
    if (const auto* text = std::get_if<ContentDelta>(&piece)) {
      if (options_.stream_arguments) add_text(text->text, out);
      continue;
    }
    auto& target = options_.stream_arguments ? out : withheld_;
    if (auto* begin = std::get_if<ToolCallBegin>(&piece)) {
      if (options_.stream_arguments) blanks_.clear();
      target.emplace_back(ToolCallBegin{n_calls_, std::move(begin->name)});
    } else if (auto* arguments = std::get_if<ToolCallArguments>(&piece)) {
      target.emplace_back(ToolCallArguments{n_calls_, std::move(arguments->json)});
    } else if (const auto* end = std::get_if<ToolCallEnd>(&piece)) {
      const std::string raw = block_->take_raw();
      const bool counts = options_.stream_arguments || end->complete || cut_;
      target.emplace_back(ToolCallEnd{n_calls_, end->complete});
      if (counts) {
        blanks_.clear();
        out.insert(out.end(), withheld_.begin(), withheld_.end());
        ++n_calls_;
      } else {
        add_text(raw, out);
      }
      gave_up_ = !counts;
      withheld_.clear();
    }
  }
}

// Blanks at the end of content wait for what follows, but only where calls can follow.
void Parser::add_text(std::string_view text, ReplyPieces& out) {
  if (markers_.openers.empty()) {
    add_content(out, text);
    return;
  }
  const std::size_t n = n_without_trailing_blanks(text);
  if (n > 0) {
    add_content(out, std::exchange(blanks_, {}));
    add_content(out, text.substr(0, n));
  }
  blanks_ += text.substr(n);
}

void Parser::settle(ReplyPieces& out) {
  if (state_ == State::Thought) {
    add_reasoning(out, blanks_);
  } else if (n_calls_ == 0) {
    add_content(out, blanks_);
  }
  blanks_.clear();
}

}  // namespace

std::unique_ptr<ReplyParser> make_reply_parser(ReplyFormat format, const ReplyOptions& options) {
  if (format == ReplyFormat::Harmony) return make_harmony_parser(options);
  return std::make_unique<Parser>(format, options);
}

void Reply::add(const ReplyPieces& pieces) {
  for (const ReplyPiece& piece : pieces) {
    if (const auto* said = std::get_if<ContentDelta>(&piece)) {
      content += said->text;
    } else if (const auto* thought = std::get_if<ReasoningDelta>(&piece)) {
      reasoning += thought->text;
    } else if (const auto* begin = std::get_if<ToolCallBegin>(&piece)) {
      calls.push_back({begin->name, "", false});
    } else if (const auto* arguments = std::get_if<ToolCallArguments>(&piece)) {
      calls.back().arguments += arguments->json;
    } else if (const auto* end = std::get_if<ToolCallEnd>(&piece)) {
      calls.back().complete = end->complete;
    }
  }
}

Reply parse_reply(ReplyFormat format, const ReplyOptions& options, std::string_view text) {
  const auto parser = make_reply_parser(format, options);
  Reply reply;
  // In pieces: the parser moves what it has not read yet whenever it finds a marker.
  constexpr std::size_t kPiece = 1024;
  for (; !text.empty(); text.remove_prefix(std::min(kPiece, text.size()))) {
    reply.add(parser->feed(text.substr(0, kPiece)));
  }
  reply.add(parser->finish());
  return reply;
}

}  // namespace moeflux
