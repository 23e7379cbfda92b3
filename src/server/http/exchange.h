// One request being answered: where a handler leaves its answer.
//
// A handler may keep the exchange beyond its own return: the answer may come at any time and from
// any thread. It is either one response, or a stream that is begun, written and finished. Anything
// written after the end, or after the client has left, is dropped.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "server/http/access_log.h"
#include "server/http/http.h"
#include "server/http/request_memory.h"

namespace moeflux {

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Adds a header to the answer. Only before the answer has begun.
  virtual void add_header(std::string name, std::string value) = 0;

  virtual void respond(HttpResponse response) = 0;

  // The head is sent at once. Nothing here blocks: bytes that the client does not take in time wait
  // in a queue, and a client whose queue is full counts as gone.
  virtual void begin_stream(StreamHead head) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;
  // Bytes of a stream that wait for the client. A writer that can leave something out looks here.
  virtual std::size_t backlog() { return 0; }

  // What the log is to say of the answer. Replaces what was said before, but where that is empty.
  virtual void set_notes(const AnswerNotes&) {}

  // Called once, on any thread, when the client leaves before the answer is complete; at once where
  // it has left already. Replaces what was set before.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;

// How a dialect writes an error.
using ErrorForm = std::function<HttpResponse(const HttpError&)>;

inline void respond_with(Exchange& exchange, const ErrorForm& form, const HttpError& error) {
  exchange.set_notes({.error = error.what()});
  HttpResponse response = form(error);
  for (const auto& header : error.headers()) response.headers.push_back(header);
  exchange.respond(std::move(response));
}

// Runs `body` and answers what it throws. `form` is read only then: the body may change it.
template <class Body>
void answering(Exchange& exchange, const ErrorForm& form, Body body) {
  try {
    body();
  } catch (const HttpError& error) {
    respond_with(exchange, form, error);
  } catch (const Error& error) {
    respond_with(exchange, form, to_http_error(error));
  } catch (const std::bad_alloc&) {
    respond_with(exchange, form, {500, "server_error", "out of memory"});
  } catch (const std::exception& error) {
    respond_with(exchange, form, {500, "server_error", error.what()});
  }
}

// The exchange of a real connection: writes an answer as HTTP/1.1 and passes its bytes from any
// thread to the one of the connection.
class LiveExchange final : public Exchange {
 public:
  struct Form {
    bool keep_alive = true;
    bool chunked = true;  // HTTP/1.1; else the connection ends with the stream
    bool head_only = false;
    std::size_t queue_bytes = 0;
    RequestMemoryPtr memory = {};
  };
  // `wake` is called from any thread when there is something to take, never after abandon(). It
  // must not call the exchange.
  LiveExchange(Form form, std::function<void()> wake)
      : form_(std::move(form)), wake_(std::move(wake)), memory_(form_.memory) {}
  ~LiveExchange() override = default;

  void add_header(std::string name, std::string value) override;
  void respond(HttpResponse response) override;
  void begin_stream(StreamHead head) override;
  void write(std::string bytes) override;
  void finish() override;
  std::size_t backlog() override;
  void set_notes(const AnswerNotes& notes) override;
  void on_gone(std::function<void()> callback) override;

  // For the connection:
  struct Taken {
    std::string bytes;
    bool done = false;        // nothing will follow
    bool keep_alive = false;  // when done
    bool gone = false;        // the queue was full: close the connection
  };
  Taken take();
  void ping();  // if a stream is open
  // Writes something that changes nothing: a client that has gone answers it with a reset. Nothing
  // can be written to a client of HTTP/1.0 before its answer.
  void probe();
  // The client has left, or the answer is complete. A handler may keep the exchange for longer than
  // the connection lives.
  void abandon();
  // Fills in status, bytes and notes.
  void describe(AccessRecord& record) const;

 private:
  enum class State { Waiting, Streaming, Done };
  std::string head(int status, const std::string& content_type, const HttpHeaders& headers,
                   const std::string& framing) const;
  void append_chunk(std::string_view bytes);
  bool has_room();
  void wake() const {
    if (wake_) wake_();
  }

  const Form form_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;  // under the mutex; none when nobody waits any more
  State state_ = State::Waiting;
  bool gone_ = false;
  HttpHeaders headers_;
  std::string ping_;
  std::string queue_;
  MemoryShare memory_;           // of the queue, and of what was taken last
  std::size_t taken_bytes_ = 0;  // that are being written
  std::uint64_t n_taken_ = 0;    // in all
  int status_ = 0;               // 0: there is no answer yet
  AnswerNotes notes_;
  std::function<void()> on_gone_;
};

}  // namespace moeflux
