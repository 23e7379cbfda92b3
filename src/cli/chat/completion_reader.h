// Reads the answers of a server that follows OpenAI's /v1/chat/completions.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/backend.h"

namespace moeflux::cli {

struct SseEvent {
  std::string name;  // of "event:"; mostly empty
  std::string data;
};

// Takes a stream of server-sent events apart while it arrives, cut anywhere.
//
// Lines end with LF, CRLF or CR; comments and fields without a meaning here are skipped; several
// data lines of an event are joined by newlines. An event is passed on when the blank line after it
// has come. One that grows beyond kMaxEventBytes throws Error(LimitExceeded).
class SseReader {
 public:
  static constexpr std::size_t kMaxEventBytes = 16 << 20;
  using Sink = std::function<void(const SseEvent&)>;

  explicit SseReader(Sink sink) : sink_(std::move(sink)) {}

  void feed(std::string_view bytes);
  // The stream has ended: an event whose lines are whole counts, though no blank line follows.
  void finish();

 private:
  void end_line();
  void end_event();

  Sink sink_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_cr_ = false;     // a LF now belongs to the CR before it
  bool at_beginning_ = true;  // where a byte order mark may stand
};

// Puts an answer together, from the chunks of a stream or from one response, as any server may send
// them: thoughts as reasoning_content or reasoning, calls in fragments or whole, with or without
// usage, timings and our own numbers. Members of an unexpected type count as absent.
class ChatCompletionReader {
 public:
  static constexpr std::size_t kMaxCalls = 128;

  // Both must outlive it; `where` names the server in messages. Time counts from here.
  ChatCompletionReader(const ChatEvents& events, const std::string& where)
      : events_(events), where_(where) {}

  // Throws Error: with the server's message for an error, for what is no JSON, for too many calls.
  void take_event(const SseEvent& event);
  void take_body(const std::string& body);  // of a response that is no stream

  bool is_done() const { return is_done_; }  // [DONE] came: nothing follows
  // Whether the answer came to its end. Without that, calls may be cut off.
  bool is_whole() const { return is_done_ || finish_reason_.has_value(); }
  const std::optional<std::string>& finish_reason() const { return finish_reason_; }
  const Json& timings() const { return timings_; }  // null: none came
  const Json& moeflux() const { return moeflux_; }

  ChatReply finish();  // once

 private:
  using Clock = std::chrono::steady_clock;
  struct CallKey {
    std::optional<std::int64_t> index;
    std::string id;
  };

  void take(const Json& chunk);
  void take_delta(const Json& delta);
  void take_call(const Json& fragment);
  ToolCall& find_call(const Json& fragment, bool has_name);
  void take_progress(const Json& progress);
  void piece_came();
  void finish_calls();

  const ChatEvents& events_;
  const std::string& where_;
  const Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> first_, last_;  // when pieces came
  ChatReply reply_;
  std::vector<CallKey> keys_;  // of reply_.reply.calls
  std::optional<std::string> finish_reason_;
  bool is_done_ = false, prompt_told_ = false;
  Json usage_, timings_, moeflux_;
};

}  // namespace moeflux::cli
