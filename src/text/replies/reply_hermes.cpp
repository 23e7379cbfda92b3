// <tool_call>{"name": "f", "arguments": {...}}</tool_call>: members in any order, "parameters" for
// "arguments", several objects in one block, the closing marker missing.
#include <array>
#include <utility>

#include "base/error.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

// What may come before a call is announced; long arguments can precede the name.
constexpr std::size_t kMaxUnannounced = 1 << 20;

// A JSON string's text; nothing when it is not one.
bool decode_string(const std::string& json, std::string& text) {
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return false;
  text = value.get<std::string>();
  return true;
}

class HermesReader final : public CallReader {
 public:
  CallStep read(std::string_view text, bool at_end, ReplyPieces& out) override {
    std::size_t at = 0;
    while (at < text.size() && !stopped_) {
      if (state_ == State::Between) {
        const CallStep step = between(text.substr(at), at_end);
        at += step.n_taken;
        if (state_ == State::Between) return {at, step.state};
      } else if (state_ == State::Raw) {
        at += raw(text.substr(at), at_end, out);
        if (!stopped_) return {at, CallState::More};
      } else if (take(text[at], out)) {
        ++at;
      }
    }
    if (!stopped_ && at_end) end_of_text(out);
    const CallState result = stopped_.value_or(CallState::More);
    if (result == CallState::CallEnded) reset();
    return {at, result};
  }

 private:
  enum class State {
    Begin,
    Key,
    KeyText,
    Colon,
    Value,
    Name,
    Arguments,
    Other,
    AfterValue,
    Raw,
    Between
  };

  // True when the byte was taken. May set stopped_.
  bool take(char c, ReplyPieces& out);
  bool take_value(char c, ReplyPieces& out);
  void begin_value(char c, ReplyPieces& out);
  void end_value(ReplyPieces& out);
  void end_arguments(ReplyPieces& out);
  void announce(ReplyPieces& out);
  void end_object(ReplyPieces& out);
  void broken(ReplyPieces& out);
  void end_call(ReplyPieces& out);
  void end_of_text(ReplyPieces& out);
  CallStep between(std::string_view text, bool at_end);
  std::size_t raw(std::string_view text, bool at_end, ReplyPieces& out);

  void reset() {
    HermesReader fresh;
    fresh.state_ = State::Between;
    *this = std::move(fresh);
  }

  State state_ = State::Begin;
  std::optional<CallState> stopped_;
  JsonScanner scanner_;
  std::string key_, value_;
  std::size_t n_unannounced_ = 0;
  std::string name_, arguments_;
  bool announced_ = false;       // then arguments go out as they come
  bool has_arguments_ = false;   // all of them
  bool arguments_good_ = false;  // and they are an object
};

bool HermesReader::take(char c, ReplyPieces& out) {
  if (!announced_ && ++n_unannounced_ > kMaxUnannounced) {
    stopped_ = CallState::NotACall;
    return false;
  }
  const bool scanning = state_ == State::KeyText || state_ == State::Name ||
                        state_ == State::Arguments || state_ == State::Other;
  if (scanning) return take_value(c, out);
  if (is_blank(c)) return true;
  switch (state_) {
    case State::Begin:
      if (c != '{') break;
      state_ = State::Key;
      return true;
    case State::Key:
      if (c == '}') {  // also after a comma
        end_object(out);
        return true;
      }
      if (c != '"') break;
      value_.clear();
      scanner_ = {};
      state_ = State::KeyText;
      return take_value(c, out);
    case State::Colon:
      if (c != ':') break;
      state_ = State::Value;
      return true;
    case State::Value:
      begin_value(c, out);
      return take_value(c, out);
    case State::AfterValue:
      if (c == '}') {
        end_object(out);
        return true;
      }
      if (c != ',') break;
      state_ = State::Key;
      return true;
    default:
      break;
  }
  broken(out);
  return false;
}

void HermesReader::begin_value(char c, ReplyPieces& out) {
  value_.clear();
  scanner_ = {};
  if (key_ == "name" && name_.empty()) {
    state_ = State::Name;
  } else if ((key_ == "arguments" || key_ == "parameters") && !has_arguments_) {
    state_ = State::Arguments;
    if (c == '{' && !name_.empty()) announce(out);
  } else {
    state_ = State::Other;
  }
}

bool HermesReader::take_value(char c, ReplyPieces& out) {
  const JsonScanner::Step step = scanner_.feed(c, value_);
  if (state_ == State::Arguments && announced_) {
    add_arguments(out, value_);
    value_.clear();
  } else if (state_ == State::Other) {
    value_.clear();
  }
  if (step == JsonScanner::Step::Bad) {
    broken(out);
    return false;
  }
  if (step == JsonScanner::Step::More) return true;
  end_value(out);
  return step == JsonScanner::Step::Done;
}

void HermesReader::end_value(ReplyPieces& out) {
  if (state_ == State::KeyText) {
    if (!decode_string(value_, key_)) key_.clear();
    state_ = State::Colon;
    return;
  }
  if (state_ == State::Name && (!decode_string(value_, name_) || name_.empty())) {
    broken(out);
    return;
  }
  if (state_ == State::Arguments) end_arguments(out);
  state_ = State::AfterValue;
}

void HermesReader::end_arguments(ReplyPieces& out) {
  has_arguments_ = true;
  arguments_good_ = true;
  if (announced_) return;
  if (value_ == "null") value_ = "{}";
  // Some models write the object as a string, as it looks in OpenAI's own protocol.
  std::string text;
  if (decode_string(value_, text)) {
    value_ = text.find_first_not_of(" \t\r\n") == std::string::npos ? "{}" : std::move(text);
    arguments_good_ = Json::parse(value_, nullptr, false).is_object();
  } else {
    arguments_good_ = value_.front() == '{';
  }
  arguments_ = std::move(value_);
  value_.clear();
  if (!name_.empty()) announce(out);
}

void HermesReader::announce(ReplyPieces& out) {
  announced_ = true;
  out.emplace_back(ToolCallBegin{0, name_});
  add_arguments(out, arguments_);
  arguments_.clear();
}

void HermesReader::end_object(ReplyPieces& out) {
  if (name_.empty()) {
    stopped_ = CallState::NotACall;
    return;
  }
  if (!has_arguments_) {
    arguments_ = "{}";
    has_arguments_ = arguments_good_ = true;
  }
  if (!announced_) announce(out);
  end_call(out);
}

void HermesReader::broken(ReplyPieces& out) {
  if (!announced_) {
    stopped_ = CallState::NotACall;
  } else if (has_arguments_) {
    end_call(out);
  } else {
    state_ = State::Raw;
  }
}

void HermesReader::end_call(ReplyPieces& out) {
  out.emplace_back(ToolCallEnd{0, has_arguments_ && arguments_good_});
  stopped_ = CallState::CallEnded;
}

void HermesReader::end_of_text(ReplyPieces& out) {
  if (announced_) {
    end_call(out);
  } else {
    stopped_ = state_ == State::Between ? CallState::Done : CallState::NotACall;
  }
}

// The arguments are not JSON: what the model wrote instead, up to the end of the call.
std::size_t HermesReader::raw(std::string_view text, bool at_end, ReplyPieces& out) {
  static const std::vector<std::string> kEnd = {std::string(kToolCallEnd)};
  const MarkerSearch search = find_marker(text, kEnd, at_end);
  add_arguments(out, text.substr(0, search.n_safe));
  if (search.marker != MarkerSearch::kNone || at_end) end_call(out);
  return search.n_safe;
}

// After a call: the end of the block, or another call.
CallStep HermesReader::between(std::string_view text, bool at_end) {
  Cursor cursor(text, at_end);
  cursor.skip_blanks();
  if (cursor.empty()) return {cursor.at(), at_end ? CallState::Done : CallState::More};
  const Cursor::Match match = cursor.match(kToolCallEnd);
  if (match == Cursor::Match::NeedMore) return {cursor.at(), CallState::More};
  if (match == Cursor::Match::Yes) return {cursor.at() + kToolCallEnd.size(), CallState::Done};
  if (!cursor.rest().starts_with('{')) return {cursor.at(), CallState::Done};
  state_ = State::Begin;
  return {cursor.at(), CallState::More};
}

}  // namespace

std::unique_ptr<CallReader> make_hermes_reader() {
  return std::make_unique<HermesReader>();
}

}  // namespace moeflux
