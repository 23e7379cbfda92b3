#include "server/http/exchange.h"

#include <algorithm>

#include <fmt/format.h>

namespace moeflux {
namespace {

// A value with a line break would end the header.
std::string header_line(const std::string& name, std::string value) {
  std::replace_if(
      value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  return fmt::format("{}: {}\r\n", name, value);
}

}  // namespace

void LiveExchange::add_header(std::string name, std::string value) {
  const std::lock_guard lock(mutex_);
  headers_.emplace_back(std::move(name), std::move(value));
}

std::string LiveExchange::head(int status, const std::string& content_type,
                               const HttpHeaders& headers, const std::string& framing) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", status, status_text(status));
  if (!content_type.empty()) text += header_line("Content-Type", content_type);
  for (const auto& [name, value] : headers_) text += header_line(name, value);
  for (const auto& [name, value] : headers) text += header_line(name, value);
  const bool closes = !form_.keep_alive || framing.empty();
  return text + framing + (closes ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
}

void LiveExchange::append_chunk(std::string_view bytes) {
  if (form_.chunked)
    queue_ += fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
  else
    queue_ += bytes;
}

// For what waits to be taken. A little is part of what each connection has.
bool LiveExchange::has_room() {
  constexpr std::size_t kFreeBytes = 8 << 10;
  const std::size_t bytes = taken_bytes_ + queue_.size();
  return queue_.size() <= form_.queue_bytes && (bytes <= kFreeBytes || memory_.grow_to(bytes));
}

void LiveExchange::respond(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Waiting) return;
  state_ = State::Done;
  status_ = response.status;
  on_gone_ = nullptr;
  const std::string length = response.status == 204
                                 ? "Content-Length: 0\r\n"
                                 : fmt::format("Content-Length: {}\r\n", response.body.size());
  queue_ += head(response.status, response.body.empty() ? "" : response.content_type,
                 response.headers, length);
  // A client that has the body already is told its length only.
  if (!form_.head_only && response.status != 304) queue_ += response.body;
  // It is there already, as part of what its request has reserved: counted as far as there is room.
  has_room();
  wake();
}

void LiveExchange::begin_stream(StreamHead stream) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Waiting) return;
  state_ = State::Streaming;
  status_ = 200;
  ping_ = std::move(stream.ping);
  stream.headers.emplace_back("Cache-Control", "no-cache");
  stream.headers.emplace_back("X-Accel-Buffering", "no");  // proxies must not collect it
  queue_ += head(200, stream.content_type, stream.headers,
                 form_.chunked ? "Transfer-Encoding: chunked\r\n" : "");
  wake();
}

void LiveExchange::write(std::string bytes) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::Streaming || gone_ || bytes.empty()) return;
    append_chunk(bytes);
    if (!has_room()) {
      queue_.clear();
      gone_ = true;
      call = std::move(on_gone_);
    }
    wake();
  }
  if (call) call();
}

void LiveExchange::finish() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Streaming) return;
  state_ = State::Done;
  on_gone_ = nullptr;
  if (form_.chunked && !gone_) queue_ += "0\r\n\r\n";
  wake();
}

std::size_t LiveExchange::backlog() {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void LiveExchange::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::Done) return;
    if (!gone_) {
      on_gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

LiveExchange::Taken LiveExchange::take() {
  const std::lock_guard lock(mutex_);
  Taken taken;
  std::swap(taken.bytes, queue_);
  taken_bytes_ = taken.bytes.size();
  n_taken_ += taken_bytes_;
  memory_.shrink_to(taken_bytes_);
  taken.done = state_ == State::Done;
  taken.gone = gone_;
  taken.keep_alive = form_.keep_alive && form_.chunked;
  return taken;
}

void LiveExchange::ping() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Streaming || gone_ || ping_.empty()) return;
  append_chunk(ping_);
  wake();
}

void LiveExchange::set_notes(const AnswerNotes& notes) {
  const std::lock_guard lock(mutex_);
  const auto take = [](auto& ours, const auto& given) {
    if (given != std::decay_t<decltype(given)>()) ours = given;
  };
  take(notes_.model, notes.model);
  take(notes_.prompt_tokens, notes.prompt_tokens);
  take(notes_.cached_tokens, notes.cached_tokens);
  take(notes_.completion_tokens, notes.completion_tokens);
  take(notes_.error, notes.error);
}

void LiveExchange::describe(AccessRecord& record) const {
  const std::lock_guard lock(mutex_);
  record.status = status_;
  record.bytes_out = n_taken_;
  record.notes = notes_;
}

void LiveExchange::probe() {
  ping();
  const std::lock_guard lock(mutex_);
  if (state_ != State::Waiting || !form_.chunked || gone_) return;
  queue_ += "HTTP/1.1 100 Continue\r\n\r\n";  // may come before any answer, more than once
  wake();
}

void LiveExchange::abandon() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    wake_ = nullptr;
    queue_.clear();
    call = std::move(on_gone_);
    on_gone_ = nullptr;
  }
  if (call) call();
}

}  // namespace moeflux
