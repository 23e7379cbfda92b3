// The exchange of a real connection: turns an answer into the bytes of HTTP/1.1 and hands them from
// whatever thread to the one that moves bytes.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>

#include "server/http/exchange.h"
#include "server/http/request_memory.h"

namespace moeflux {

class LiveExchange final : public Exchange {
 public:
  struct Form {
    bool keep_alive = true;
    bool chunked = true;  // HTTP/1.1; else the connection ends with the stream
    bool head_only = false;
    std::size_t queue_bytes = 0;
    RequestMemoryPtr memory = {};
  };
  // `wake` is called from any thread when there is something to take, never after abandon(). Must
  // not call back.
  LiveExchange(Form form, std::function<void()> wake)
      : form_(std::move(form)), wake_(std::move(wake)), memory_(form_.memory) {}
  ~LiveExchange() override = default;

  void add_header(std::string name, std::string value) override;
  void respond(HttpResponse response) override;
  void begin_stream(StreamHead head) override;
  void write(std::string bytes) override;
  void finish() override;
  void on_gone(std::function<void()> callback) override;

  // For the connection:
  struct Taken {
    std::string bytes;
    bool done = false;        // nothing will follow
    bool keep_alive = false;  // when done
    bool gone = false;        // the queue was full: give up
  };
  Taken take();
  void ping();  // if a stream is open
  // Has something written that changes nothing: a client that has gone answers it with a reset.
  // There is nothing to write to a client of HTTP/1.0 before its answer.
  void probe();
  // The client has left, or all is said: who answers may keep the exchange for longer than the
  // connection lives.
  void abandon();

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
  std::mutex mutex_;
  std::function<void()> wake_;  // under the mutex; none when nobody waits any more
  State state_ = State::Waiting;
  bool gone_ = false;
  HttpHeaders headers_;
  std::string ping_;
  std::string queue_;
  MemoryShare memory_;           // of the queue, and of what was taken last
  std::size_t taken_bytes_ = 0;  // that are being written
  std::function<void()> on_gone_;
};

}  // namespace moeflux
