// A server in this process, with the demo model behind it, on a port of its own.
#pragma once

#include <memory>

#include "server/dialects/errors.h"
#include "server/http/http_server.h"
#include "server/http_client.h"
#include "server/server_app.h"
#include "support/paths.h"

namespace moeflux::test {

struct DemoOptions {
  int n_parallel = 2;
  std::size_t max_waiting = 8;
  std::int64_t context = 512;
  DraftOptions drafts = {};
  ServerAppOptions app = {.model_id = "demo", .version = "test"};
  HttpLimits limits = {};
  RequestMemoryPtr memory = {};
  bool loaded = true;
  std::string model = source_path("models/demo");
  std::function<void(EngineOptions&)> adjust = {};  // what else the engine is opened with
};

class DemoServer {
 public:
  explicit DemoServer(DemoOptions options = {}) : options_(std::move(options)), app_(options_.app) {
    if (options_.loaded) load();
    server_ = std::make_unique<HttpServer>(
        HttpServerOptions{
            .port = 0, .n_workers = 2, .limits = options_.limits, .memory = options_.memory},
        [this](HttpRequest request, ExchangePtr exchange) {
          app_.handle(std::move(request), exchange);
        },
        error_by_path);
    app_.models().set_workers([this](std::function<void()> work) { server_->post(work); });
  }
  ~DemoServer() {
    if (service_) service_->stop();
  }

  void load() {
    EngineOptions engine;
    engine.n_threads = 1;
    engine.context_length = options_.context;
    engine.max_batch = 64;
    engine.n_sessions = options_.n_parallel;
    engine.n_checkpoints = 4;
    engine.max_drafts = options_.drafts.any() ? 2 : 0;
    engine.memory_bytes = std::uint64_t{1} << 30;
    engine.elastic = false;
    if (options_.adjust) options_.adjust(engine);
    engine_ = std::make_unique<Engine>(options_.model, engine);
    service_ = std::make_shared<GenerationService>(
        *engine_, ServiceOptions{.n_parallel = options_.n_parallel,
                                 .max_waiting = options_.max_waiting,
                                 .drafts = options_.drafts,
                                 .memory = options_.memory});
    app_.set_service(service_);
  }

  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  GenerationService& service() { return *service_; }
  ClientResponse get(const std::string& path, const std::string& headers = "") const {
    return test::get(port(), path, headers);
  }
  ClientResponse post(const std::string& path, const Json& body,
                      const std::string& headers = "") const {
    return test::post(port(), path, body, headers);
  }

  Engine& engine() { return *engine_; }

  // Whether so many answers have been given up, waiting for it.
  bool wait_for_cancelled(std::uint64_t n) {
    for (int i = 0; i < 5000 && service_->stats().n_cancelled < n; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return service_->stats().n_cancelled == n;
  }

 private:
  DemoOptions options_;
  std::unique_ptr<Engine> engine_;
  ServerApp app_;  // holds the service, too
  std::shared_ptr<GenerationService> service_;
  std::unique_ptr<HttpServer> server_;  // last: its connections use all of the above
};

// A question to the demo model without thinking; the answer to the sum is "12 + 30 = 42".
inline Json question(const std::string& text) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", text}}})},
          {"chat_template_kwargs", {{"enable_thinking", false}}},
          {"temperature", 0}};
}
inline Json sum_question() {
  return question("What is 12 + 30?");
}
// One that is not answered before somebody ends it.
inline Json endless_question() {
  Json body = question("Tell me a short story about a frog.");
  body["ignore_eos"] = true;
  body["stream"] = true;
  return body;
}

}  // namespace moeflux::test
