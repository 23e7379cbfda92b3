// A server without a model, for tests of what HTTP itself demands.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "server/dialects/errors.h"
#include "server/http/http_server.h"
#include "server/http_client.h"

namespace moeflux::test {

// Answers with what it was asked, below /slow only after a moment. /stream begins a stream and
// leaves it open, /silent says nothing.
class EchoServer {
 public:
  // memory: for requests; 0: as much as they like.
  explicit EchoServer(HttpLimits limits = {}, std::string host = "127.0.0.1",
                      std::uint64_t memory = 0)
      : EchoServer({.host = std::move(host),
                    .port = 0,
                    .n_workers = 2,
                    .limits = limits,
                    .memory = memory > 0 ? std::make_shared<RequestMemory>(memory) : nullptr}) {}
  explicit EchoServer(HttpServerOptions options)
      : memory_(options.memory),
        server_(
            std::move(options),
            [this](HttpRequest request, ExchangePtr exchange) { answer(request, exchange); },
            openai_error) {}

  HttpServer& operator*() { return server_; }
  HttpServer* operator->() { return &server_; }
  int port() { return server_.port(); }
  const RequestMemory& memory() const { return *memory_; }
  bool is_alive() { return get(port(), "/alive").status == 200; }

  std::chrono::milliseconds slow{2};
  std::atomic<int> n_gone{0};
  // A client may see the head of a stream before the handler has left it here.
  ExchangePtr last_stream() {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (stream_) return stream_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool wait_for_gone(int n) {
    for (int i = 0; i < 1000 && n_gone < n; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return n_gone == n;
  }

 private:
  void answer(const HttpRequest& request, const ExchangePtr& exchange) {
    if (request.path.starts_with("/slow")) std::this_thread::sleep_for(slow);
    if (request.path != "/stream" && request.path != "/silent") {
      exchange->respond({.body = request.method + " " + request.path + " " +
                                 std::to_string(request.body.size())});
      return;
    }
    exchange->on_gone([this] { ++n_gone; });
    if (request.path == "/stream") exchange->begin_stream({});
    const std::lock_guard lock(mutex_);
    stream_ = exchange;
  }

  std::mutex mutex_;
  ExchangePtr stream_;
  RequestMemoryPtr memory_;
  HttpServer server_;  // last: it uses the others
};

}  // namespace moeflux::test
