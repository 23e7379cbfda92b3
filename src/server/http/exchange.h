// One request being answered: where a handler leaves its answer.
//
// A handler gets the exchange and may keep it beyond its own return: the answer may come at any
// time and from any thread. It is either one response, or a stream that is begun, written and
// finished. What comes after the end, or after the client has left, is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http/http.h"

namespace moeflux {

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Goes with whatever is answered. Only before the answer has begun.
  virtual void add_header(std::string name, std::string value) = 0;

  virtual void respond(HttpResponse response) = 0;

  // The head is sent at once. Never blocks; what the client does not take in time waits in a queue,
  // and a client whose queue is full counts as gone.
  virtual void begin_stream(StreamHead head) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;

  // Called once, on any thread, when the client leaves before the answer is complete; at once where
  // it has left already. Replaces what was set before.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace moeflux
