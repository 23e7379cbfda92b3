#include "cli/chat/completion_reader.h"

#include <utility>

#include "base/error.h"
#include "cli/client/http_client.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

constexpr std::size_t kShownBytes = 1000;

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

bool is_object(const std::string& json) {
  try {
    return parse_json(json, "arguments").is_object();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void SseReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + event_.data.size() > kMaxEventBytes) {
      fail(Errc::LimitExceeded, "the server sends an event of more than {} MiB",
           kMaxEventBytes >> 20);
    }
    if (end == std::string_view::npos) return;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line();
  }
}

void SseReader::finish() {
  line_.clear();
  end_event();
}

void SseReader::end_line() {
  const std::string whole = std::exchange(line_, {});
  std::string_view line = whole;
  if (std::exchange(at_beginning_, false) && line.substr(0, 3) == kByteOrderMark)
    line.remove_prefix(3);
  if (line.empty()) return end_event();
  const std::size_t colon = line.find(':');  // 0: a comment, with an empty name
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  // Some servers report errors as a field of that name, without data.
  const bool is_error = name == "error";
  if (name == "event" || is_error) event_.name = is_error ? name : value;
  if (name != "data" && !is_error) return;
  if (std::exchange(has_data_, true)) event_.data += '\n';
  event_.data += value;
}

void SseReader::end_event() {
  const SseEvent event = std::exchange(event_, {});
  if (std::exchange(has_data_, false)) sink_(event);
}

void ChatCompletionReader::take_event(const SseEvent& event) {
  if (is_done_) return;
  if (event.data == "[DONE]") {
    is_done_ = true;
    return;
  }
  const Json chunk = parse_json(event.data, fmt::format("an event of {}", where_));
  if (event.name == "error" && error_message(chunk).empty()) {
    fail(Errc::Io, "{}: {}", where_,
         safe_line(std::string_view(event.data).substr(0, kShownBytes)));
  }
  take(chunk);
}

void ChatCompletionReader::take_body(const std::string& body) {
  take(parse_json(body, fmt::format("the answer of {}", where_)));
  is_done_ = true;
}

void ChatCompletionReader::take(const Json& chunk) {
  if (const std::string error = error_message(chunk); !error.empty())
    fail(Errc::Io, "{}: {}", where_, safe_line(std::string_view(error).substr(0, kShownBytes)));
  if (const Json* progress = member(chunk, "prompt_progress")) take_progress(*progress);
  if (const Json* found = member(chunk, "usage")) usage_ = *found;
  if (const Json* found = member(chunk, "timings")) timings_ = *found;
  if (const Json* found = member(chunk, "moeflux")) moeflux_ = *found;
  const Json* choices = member(chunk, "choices");
  if (choices == nullptr || !choices->is_array()) return;
  for (const Json& choice : *choices) {
    if (count_or_zero(member(choice, "index")) != 0) continue;  // one was asked for
    if (const Json* delta = member(choice, "delta")) take_delta(*delta);
    if (const Json* message = member(choice, "message")) take_delta(*message);
    if (const Json* reason = member(choice, "finish_reason"))
      finish_reason_ = text_or_empty(reason);
  }
}

void ChatCompletionReader::take_progress(const Json& progress) {
  const std::int64_t total = count_or_zero(member(progress, "total"));
  const std::int64_t cached = std::min(count_or_zero(member(progress, "cache")), total);
  if (events_.on_prompt && !std::exchange(prompt_told_, true))
    events_.on_prompt(total - cached, cached);
}

void ChatCompletionReader::piece_came() {
  last_ = Clock::now();
  if (!first_) first_ = last_;
}

void ChatCompletionReader::take_delta(const Json& delta) {
  // Some servers send the same thought under both names.
  std::string thought = text_or_empty(member(delta, "reasoning_content"));
  if (thought.empty()) thought = text_or_empty(member(delta, "reasoning"));
  if (!thought.empty()) {
    piece_came();
    reply_.reply.reasoning += thought;
    if (events_.on_thought) events_.on_thought(thought);
  }
  for (const char* key : {"content", "refusal"}) {
    const std::string text = text_or_empty(member(delta, key));
    if (text.empty()) continue;
    piece_came();
    reply_.reply.content += text;
    if (events_.on_text) events_.on_text(text);
  }
  if (const Json* calls = member(delta, "tool_calls"); calls != nullptr && calls->is_array()) {
    for (const Json& fragment : *calls) take_call(fragment);
  }
}

// The call that a fragment belongs to. Some servers leave the index out, others number every call
// with 0 and tell them apart by id.
ToolCall& ChatCompletionReader::find_call(const Json& fragment, bool has_name) {
  std::vector<ToolCall>& calls = reply_.reply.calls;
  CallKey key{std::nullopt, text_or_empty(member(fragment, "id"))};
  if (const Json* index = member(fragment, "index"); index != nullptr && index->is_number())
    key.index = count_or_zero(index);
  for (std::size_t i = calls.size(); i-- > 0;) {
    const bool same_id = key.id.empty() || keys_[i].id.empty() || key.id == keys_[i].id;
    const bool same_index = key.index ? key.index == keys_[i].index : !has_name;
    if (same_index && same_id) return calls[i];
  }
  if (calls.size() == kMaxCalls)
    fail(Errc::LimitExceeded, "{}: more than {} calls in one answer", where_, kMaxCalls);
  keys_.push_back(std::move(key));
  return calls.emplace_back();
}

void ChatCompletionReader::take_call(const Json& fragment) {
  const Json* function = member(fragment, "function");
  if (function == nullptr) return;
  piece_came();
  const std::string name = text_or_empty(member(*function, "name"));
  ToolCall& call = find_call(fragment, !name.empty());
  if (call.name.empty() && !name.empty()) {
    call.name = name;
    if (events_.on_call) events_.on_call(name);
  }
  const Json* arguments = member(*function, "arguments");
  if (arguments == nullptr) return;
  call.arguments += arguments->is_string() ? arguments->get<std::string>() : dump_json(*arguments);
}

void ChatCompletionReader::finish_calls() {
  for (ToolCall& call : reply_.reply.calls) {
    if (call.arguments.find_first_not_of(" \t\r\n") == std::string::npos) call.arguments = "{}";
    call.complete = is_whole() && !call.name.empty() && is_object(call.arguments);
  }
}

ChatReply ChatCompletionReader::finish() {
  finish_calls();
  ChatReply reply = std::move(reply_);
  const auto first_of = [](std::int64_t a, std::int64_t b) { return a > 0 ? a : b; };
  const std::int64_t timed_cached = count_or_zero(member(timings_, "cache_n"));
  reply.n_prompt = first_of(count_or_zero(member(usage_, "prompt_tokens")),
                            count_or_zero(member(timings_, "prompt_n")) + timed_cached);
  reply.n_cached = first_of(count_or_zero(member(usage_, "prompt_tokens_details", "cached_tokens")),
                            timed_cached);
  reply.n_answer = first_of(count_or_zero(member(usage_, "completion_tokens")),
                            count_or_zero(member(timings_, "predicted_n")));
  reply.prompt_seconds = number_or_zero(member(timings_, "prompt_ms")) / 1e3;
  reply.answer_seconds = number_or_zero(member(timings_, "predicted_ms")) / 1e3;
  if (first_) {
    reply.first_token_seconds = seconds(*first_ - start_);
    if (!(reply.answer_seconds > 0)) reply.answer_seconds = seconds(*last_ - *first_);
  }
  const auto count = [&](const char* key) {
    return static_cast<std::uint64_t>(count_or_zero(member(moeflux_, "experts", key)));
  };
  reply.hits = count("hits");
  reply.misses = count("misses");
  return reply;
}

}  // namespace moeflux::cli
