// How the reply formats write tool calls: the markers, for those who read them and those who force
// them, and the readers behind ReplyParser.
//
// ReplyParser finds the marker that opens a block of calls and gives the reader what follows. The
// reader announces a call only when it is sure that it is one; until then it may say that it is
// none, and everything goes back. After that it never gives up: whatever is wrong with the
// arguments, the call ends.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/replies/reply_parser.h"

namespace moeflux {

// ---- markers

inline constexpr std::string_view kThoughtBegin = "<think>";
inline constexpr std::string_view kThoughtEnd = "</think>";

// Hermes: one JSON object between these two.
inline constexpr std::string_view kToolCallBegin = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";

// Calls whose parameters have tags of their own:
//   block_begin (function_begin NAME function_open (parameter_begin KEY parameter_open value
//   parameter_end)* function_end)* block_end
struct TaggedMarkup {
  std::string_view block_begin, block_end;
  std::string_view function_begin, function_open, function_end;
  std::string_view parameter_begin, parameter_open, parameter_end;
  // GLM writes NAME right after block_begin and ends the function with the block (the three of the
  // function are empty), and a tag of its own around the value: it comes after parameter_open.
  std::string_view value_open = {};
  bool lines = false;         // a value stands on lines of its own
  bool names_string = false;  // string="true" or "false" in the tag says what a value is
};
const TaggedMarkup& tagged_markup(ReplyFormat format);
bool is_tagged(ReplyFormat format);

// Calls of a name and JSON arguments with markers around and between:
//   section_begin (call_begin NAME separator arguments call_end)* section_end
// V3 of DeepSeek writes call_begin "function" separator NAME "\n```json\n" arguments "\n```".
struct MarkedMarkup {
  std::string_view section_begin, section_end;
  std::string_view call_begin, separator, call_end;
  bool numbered;  // NAME is written as functions.NAME:INDEX
};
const MarkedMarkup& marked_markup(ReplyFormat format);
bool is_marked(ReplyFormat format);

// How templates write calls, blanks included: what a model is used to, and is made to write.
struct CallShape {
  std::string block_begin;
  std::string before_name, after_name, after_arguments;
  std::string between;  // of two calls of a block, or of two blocks
  std::string block_end;
  bool calls_share_block = false;
};
CallShape call_shape(ReplyFormat format);

// How a format opens and closes blocks of calls.
struct CallMarkers {
  std::vector<std::string> openers;
  std::vector<std::string> closers;  // meaningless outside of a block
};
CallMarkers call_markers(ReplyFormat format);

// ---- readers

enum class CallState {
  More,       // all was read that can be; feed again
  CallEnded,  // a ToolCallEnd was written; read on at once
  Done,       // the block is over; what was not taken is not part of it
  NotACall,   // since the block began or the last call ended, nothing was a call
};

struct CallStep {
  std::size_t n_taken;  // bytes of the text
  CallState state;
};

class CallReader {
 public:
  virtual ~CallReader() = default;
  // `at_end`: no text will follow; the answer is then Done or NotACall, in the end. Pieces carry
  // index 0.
  virtual CallStep read(std::string_view text, bool at_end, ReplyPieces& out) = 0;
};

// For a block that the opener of that index has opened. `tools` must outlive the reader.
std::unique_ptr<CallReader> make_call_reader(ReplyFormat format, std::size_t opener,
                                             const Json& tools);

std::unique_ptr<CallReader> make_hermes_reader();
std::unique_ptr<CallReader> make_tagged_reader(ReplyFormat format, std::size_t opener,
                                               const Json& tools);
std::unique_ptr<CallReader> make_marked_reader(ReplyFormat format, std::size_t opener);

// ---- for readers

// A place in text that may be all there is so far.
class Cursor {
 public:
  Cursor(std::string_view text, bool at_end) : text_(text), at_end_(at_end) {}

  enum class Match { Yes, No, NeedMore };
  Match match(std::string_view what) const;  // whether the rest begins with it
  void skip_blanks();

  std::string_view rest() const { return text_.substr(at_); }
  bool empty() const { return at_ == text_.size(); }
  bool at_end() const { return at_end_; }
  std::size_t at() const { return at_; }
  void advance(std::size_t n) { at_ += n; }

 private:
  std::string_view text_;
  bool at_end_;
  std::size_t at_ = 0;
};

// A reader that moves from state to state.
class SteppedReader : public CallReader {
 public:
  CallStep read(std::string_view text, bool at_end, ReplyPieces& out) final;

 protected:
  // What one step within a state came to.
  enum class Move { On, NeedMore, NotACall, CallEnded, Done };
  virtual Move step(Cursor& cursor, ReplyPieces& out) = 0;

  bool announced_ = false;  // the present call

 private:
  static constexpr std::size_t kMaxUnannounced = 4096;  // bytes that may turn out to be no call
  std::size_t n_unannounced_ = 0;
};

// How much of `text` can be passed on when `markers` have to be found in it: up to the first
// complete one (`marker` is its index), or up to where one may begin.
struct MarkerSearch {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t n_safe;
  std::size_t marker = kNone;
};
MarkerSearch find_marker(std::string_view text, const std::vector<std::string>& markers,
                         bool at_end);

// Append to the last piece where it is of the same kind.
void add_content(ReplyPieces& out, std::string_view text);
void add_reasoning(ReplyPieces& out, std::string_view text);
void add_arguments(ReplyPieces& out, std::string_view json);

// The object with name, description and parameters in an entry of `tools`.
const Json& tool_function(const Json& tool);
const Json* find_tool(const Json& tools, std::string_view name);  // its function, or null

}  // namespace moeflux
