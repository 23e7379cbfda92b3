// An exchange without a connection: keeps what was answered.
#pragma once

#include <string>

#include "server/http/exchange.h"

namespace moeflux::test {

class RecordingExchange final : public Exchange {
 public:
  void add_header(std::string, std::string) override {}
  void respond(HttpResponse given) override { response = std::move(given); }
  void begin_stream(StreamHead given) override { head = std::move(given); }
  void write(std::string bytes) override { stream += bytes; }
  void finish() override { finished = true; }
  void on_gone(std::function<void()>) override {}

  HttpResponse response = {};
  StreamHead head = {};
  std::string stream;
  bool finished = false;
};

}  // namespace moeflux::test
