// Reads Harmony. Which message something belongs to is known when its head is complete, up to
// <|message|>; until then the head waits. Text where a head should be, and which cannot be one, is
// content: models that are cut out of their format still say something.
#include "text/replies/reply_harmony.h"

#include <algorithm>
#include <utility>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxHarmonyHead = 512;  // bytes up to <|message|>

// In the order of the enumerators below.
const std::vector<std::string>& markers() {
  static const std::vector<std::string> kMarkers = {
      std::string(kHarmonyMessage), std::string(kHarmonyStart),  std::string(kHarmonyEnd),
      std::string(kHarmonyCall),    std::string(kHarmonyReturn), std::string(kHarmonyChannel)};
  return kMarkers;
}
enum Marker : std::size_t { kMessage, kStart, kEnd, kCall, kReturn, kChannel };

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Up to a blank or a marker.
std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

struct Head {
  std::string role, recipient, channel;
};

Head read_head(std::string_view text, bool has_role) {
  Head head;
  bool is_first = true;
  while (true) {
    const std::size_t end = std::min(text.find(kHarmonyChannel), text.size());
    std::string_view part = without_blanks(text.substr(0, end));
    const std::size_t to = part.find("to=");
    if (to != std::string_view::npos) {
      const std::string_view recipient = first_word(part.substr(to + 3));
      if (!recipient.empty() && recipient != "assistant") head.recipient = recipient;
      part = part.substr(0, to);
    }
    if (is_first) {
      if (has_role) head.role = first_word(part);
    } else {
      head.channel = first_word(part);
    }
    is_first = false;
    if (end == text.size()) return head;
    text.remove_prefix(end + kHarmonyChannel.size());
  }
}

// Whether a reply, or what follows an ended message, can begin a head with this text.
bool may_be_head(std::string_view text, bool role_may_come = true) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  if (text.empty()) return true;
  const auto begins = [&](std::string_view what) {
    return text.starts_with(what) || what.starts_with(text);
  };
  if (text.front() == '<')
    return begins(kHarmonyConstrain) || std::any_of(markers().begin(), markers().end(), begins);
  if (begins("to=")) {
    const std::size_t marker = std::min(text.find('<'), text.size());
    return text.substr(0, marker).find('\n') == std::string_view::npos &&
           may_be_head(text.substr(marker), false);
  }
  constexpr std::string_view kRole = "assistant";
  if (!role_may_come || !begins(kRole)) return false;
  return text.size() <= kRole.size() || may_be_head(text.substr(kRole.size()), false);
}

class HarmonyParser final : public ReplyParser {
 public:
  explicit HarmonyParser(const ReplyOptions& options)
      : options_(options), has_tools_(options.tools.is_array() && !options.tools.empty()) {
    if (options.opens_thought) begin_body(Kind::Thought);
  }

  ReplyPieces feed(std::string_view text) override {
    text_ += text;
    return run(false);
  }
  ReplyPieces finish(ReplyEnd end) override {
    cut_ = end == ReplyEnd::Cut;
    if (cut_ && in_body_) text_.erase(std::min(text_.find('<'), text_.size()));
    ReplyPieces out = run(true);
    if (in_body_) {
      end_body(!cut_, out);
    } else if (!cut_ && is_first_ && !has_role_ && text_.find("<|") == std::string::npos) {
      add_text(Kind::Content, text_, out);
    }
    return out;
  }

 private:
  enum class Kind { Content, Thought, Call, Dropped };
  enum class Arguments { Before, Inside, After, Broken };

  ReplyPieces run(bool at_end) {
    ReplyPieces out;
    while (in_body_ ? body(at_end, out) : head(at_end, out)) {
    }
    return out;
  }

  // False: waits for more text.
  bool head(bool at_end, ReplyPieces& out);
  bool body(bool at_end, ReplyPieces& out);
  Kind kind_of(const Head& head);
  void begin_body(Kind kind);
  void end_body(bool complete, ReplyPieces& out);
  void add_body(std::string_view text, ReplyPieces& out);
  void add_text(Kind kind, std::string_view text, ReplyPieces& out);
  void add_call(std::string_view text, ReplyPieces& out);
  void end_call(bool complete, ReplyPieces& out);

  const ReplyOptions options_;
  const bool has_tools_;
  std::string text_;  // not read yet
  bool cut_ = false;
  bool in_body_ = false;
  bool has_role_ = false;  // the head began with <|start|>
  bool is_first_ = true;   // no message has begun
  Kind kind_ = Kind::Content;
  bool begins_message_ = true;                      // nothing of this one has come out
  bool shows_markers_ = false;                      // of a thought that is content
  bool had_content_ = false, had_thought_ = false;  // in messages before

  int n_calls_ = 0;
  std::string name_, raw_;  // of the call; raw_ is all its text
  Arguments arguments_ = Arguments::Before;
  JsonScanner scanner_;
  ReplyPieces call_;  // withheld, unless arguments are streamed
};

bool HarmonyParser::head(bool at_end, ReplyPieces& out) {
  if (!has_role_ && !may_be_head(text_)) {
    begin_body(Kind::Content);
    return true;
  }
  static const std::vector<std::string> kEnds(markers().begin(), markers().begin() + kChannel);
  const MarkerSearch search = find_marker(text_, kEnds, at_end);
  if (search.n_safe > kMaxHarmonyHead) {  // it is none
    const std::size_t first = text_.find_first_not_of(" \t\r\n");
    if (std::string_view(text_).substr(first).starts_with(kHarmonyChannel))
      text_.erase(first, kHarmonyChannel.size());
    begin_body(Kind::Content);
    return true;
  }
  if (search.marker == MarkerSearch::kNone) return false;
  const std::string_view text = std::string_view(text_).substr(0, search.n_safe);
  const std::size_t n_taken = search.n_safe + kEnds[search.marker].size();
  if (search.marker == kMessage) {
    raw_ = text_.substr(0, n_taken);
    const Head head = read_head(text, has_role_);
    begin_body(kind_of(head));
    shows_markers_ = kind_ == Kind::Content && head.channel == "analysis";
    if (shows_markers_) add_text(kind_, raw_, out);
  } else {
    has_role_ = search.marker == kStart;  // a head without a message
  }
  text_.erase(0, n_taken);
  return true;
}

HarmonyParser::Kind HarmonyParser::kind_of(const Head& head) {
  if (!head.role.empty() && head.role != "assistant") return Kind::Dropped;
  if (!head.recipient.empty()) {
    constexpr std::string_view kFunctions = "functions.";
    const bool is_function = head.recipient.starts_with(kFunctions);
    name_ = is_function ? head.recipient.substr(kFunctions.size()) : head.recipient;
    const bool is_call = has_tools_ && !name_.empty() &&
                         (is_function || find_tool(options_.tools, name_) != nullptr);
    return is_call ? Kind::Call : Kind::Dropped;
  }
  return head.channel == "analysis" && options_.reasoning ? Kind::Thought : Kind::Content;
}

void HarmonyParser::begin_body(Kind kind) {
  kind_ = kind;
  in_body_ = true;
  is_first_ = false;
  begins_message_ = true;
  shows_markers_ = false;
  arguments_ = Arguments::Before;
  scanner_ = {};
}

bool HarmonyParser::body(bool at_end, ReplyPieces& out) {
  static const std::vector<std::string> kEnds(markers().begin() + kStart, markers().end());
  const MarkerSearch search = find_marker(text_, kEnds, at_end);
  add_body(std::string_view(text_).substr(0, search.n_safe), out);
  text_.erase(0, search.n_safe);
  if (search.marker == MarkerSearch::kNone) return false;
  const std::size_t marker = search.marker + kStart;
  if (shows_markers_ && marker == kEnd) add_text(kind_, kHarmonyEnd, out);
  // Models forget <|end|>: another head ends a message, too.
  if (marker != kChannel) text_.erase(0, kEnds[search.marker].size());
  end_body(true, out);
  has_role_ = marker == kStart;
  return true;
}

void HarmonyParser::end_body(bool complete, ReplyPieces& out) {
  in_body_ = false;
  if (kind_ == Kind::Call) end_call(complete, out);
  if (!begins_message_ && !shows_markers_)
    (kind_ == Kind::Thought ? had_thought_ : had_content_) = true;
}

void HarmonyParser::add_body(std::string_view text, ReplyPieces& out) {
  switch (kind_) {
    case Kind::Content:
    case Kind::Thought:
      add_text(kind_, text, out);
      break;
    case Kind::Call:
      raw_ += text;
      add_call(text, out);
      break;
    case Kind::Dropped:
      break;
  }
}

void HarmonyParser::add_text(Kind kind, std::string_view text, ReplyPieces& out) {
  if (text.empty()) return;
  const bool is_thought = kind == Kind::Thought;
  const bool follows =
      std::exchange(begins_message_, false) && (is_thought ? had_thought_ : had_content_);
  for (const std::string_view each : {std::string_view(follows ? "\n\n" : ""), text})
    is_thought ? add_reasoning(out, each) : add_content(out, each);
}

void HarmonyParser::add_call(std::string_view text, ReplyPieces& out) {
  ReplyPieces& to = options_.stream_arguments ? out : call_;
  if (arguments_ == Arguments::Before) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    if (text.empty()) return;
    to.emplace_back(ToolCallBegin{n_calls_, name_});
    arguments_ = text.front() == '{' ? Arguments::Inside : Arguments::Broken;
  }
  std::string taken;
  while (arguments_ == Arguments::Inside && !text.empty()) {
    const JsonScanner::Step step = scanner_.feed(text.front(), taken);
    if (step == JsonScanner::Step::Bad) {
      arguments_ = Arguments::Broken;
      break;
    }
    text.remove_prefix(1);
    if (step == JsonScanner::Step::Done) arguments_ = Arguments::After;
  }
  if (arguments_ == Arguments::Broken) taken += text;  // what the model wrote instead
  if (taken.empty()) return;
  if (to.empty() || !std::holds_alternative<ToolCallArguments>(to.back()))
    to.emplace_back(ToolCallArguments{n_calls_, {}});
  std::get<ToolCallArguments>(to.back()).json += taken;
}

void HarmonyParser::end_call(bool complete, ReplyPieces& out) {
  if (arguments_ == Arguments::Before) {
    if (!complete) return;
    add_call("{}", out);
  }
  const bool is_whole = arguments_ == Arguments::After;
  ReplyPieces& to = options_.stream_arguments ? out : call_;
  to.emplace_back(ToolCallEnd{n_calls_, is_whole});
  if (!options_.stream_arguments) {
    ReplyPieces call = std::exchange(call_, {});
    if (!is_whole && !cut_) return add_text(Kind::Content, raw_, out);
    out.insert(out.end(), call.begin(), call.end());
  }
  ++n_calls_;
}

}  // namespace

std::unique_ptr<ReplyParser> make_harmony_parser(const ReplyOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace moeflux
